//! What every server needs: TLS, health, metrics, logging, shutdown.
