//! The person's view: graph and plan, live or from files.
