//! The extender as a local process, with the permissions of its service account.

use std::{collections::BTreeMap, net::SocketAddr};

use anyhow::Context;
use kube::{Client, Config};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::Installation;
use crate::{Extender, Process, SchedulerConfig, metrics, ports, readiness::Probe};

/// A running extender; it is killed when dropped.
#[derive(Debug)]
pub struct RunningExtender {
    process: Process,
    url: String,
    operations: u16,
}

impl RunningExtender {
    /// The process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// The URL before the verb.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The port of its health and metrics on the loopback interface.
    pub fn operations(&self) -> u16 {
        self.operations
    }

    /// Its current metrics, by name and labels, from `/metrics`.
    pub async fn metrics(&self) -> anyhow::Result<BTreeMap<String, f64>> {
        metrics::samples(self.operations).await
    }

    /// A page of `/debug` as JSON; `None` if it does not exist.
    pub async fn debug(&self, path: &str) -> anyhow::Result<Option<Value>> {
        let answer = Probe::new(&format!("{}/debug/{path}", self.url))?.look().await;
        match answer {
            Ok(text) => Ok(Some(serde_json::from_str(&text)?)),
            Err(error) if error.contains("404") => Ok(None),
            Err(error) => anyhow::bail!("/debug/{path}: {error}"),
        }
    }

    /// Its scores for a request of the scheduler, by node.
    pub async fn prioritize(&self, args: &Value) -> anyhow::Result<Vec<(String, i64)>> {
        let mut config = Config::new(self.url.parse()?);
        config.accept_invalid_certs = true;
        let request = http::Request::post("/prioritize")
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(serde_json::to_vec(args)?)?;
        let answer: Vec<Value> = Client::try_from(config)?.request(request).await?;
        let of =
            |scored: &Value| Some((scored["Host"].as_str()?.to_owned(), scored["Score"].as_i64()?));
        answer.iter().map(of).collect::<Option<_>>().context("hosts have scores")
    }

    /// Freezes it: its port stays open, but it does not respond.
    pub fn freeze(&self) -> anyhow::Result<()> {
        let pid = i32::try_from(self.process.pid()).ok().and_then(Pid::from_raw);
        Ok(kill_process(pid.context("it has an id")?, Signal::STOP)?)
    }
}

impl Installation<'_> {
    /// Starts the extender and a scheduler that calls it.
    pub async fn start_extender(&mut self) -> anyhow::Result<()> {
        let url = self.start_extender_alone().await?;
        let extender = Extender::new(&url, &self.plane.authority().pem());
        self.plane.restart_scheduler(&SchedulerConfig::with_extenders(vec![extender])).await
    }

    /// Starts the extender; returns the URL before the verb.
    pub async fn start_extender_alone(&mut self) -> anyhow::Result<String> {
        self.extender = None;
        let (port, operations) = (ports::free()?, ports::free()?);
        let identity = self.plane.authority().issue("scheduler-ext", self.plane.directory())?;
        let tls = [
            format!("--listen=127.0.0.1:{port}"),
            format!("--tls-cert={}", identity.certificate.display()),
            format!("--tls-key={}", identity.key.display()),
        ];
        let process = self.spawn("scheduler-ext", "scheduler-ext", operations, &tls).await?;
        let url = format!("https://127.0.0.1:{port}");
        self.extender = Some(RunningExtender { process, url: url.clone(), operations });
        Ok(url)
    }

    /// Starts the extender on plain HTTP, as deployed next to a scheduler, with additional flags.
    /// Returns its address.
    pub async fn start_plain_extender(&mut self, args: &[&str]) -> anyhow::Result<SocketAddr> {
        self.extender = None;
        self.start_plain_extender_on(ports::free()?, args).await
    }

    /// Replaces the extender on plain HTTP; the scheduler finds the new one at its address.
    pub async fn restart_plain_extender(&mut self, args: &[&str]) -> anyhow::Result<()> {
        let uri: http::Uri = self.extender()?.url.parse()?;
        let port = uri.port_u16().context("its URL has a port")?;
        self.extender = None;
        self.start_plain_extender_on(port, args).await.map(drop)
    }

    async fn start_plain_extender_on(
        &mut self,
        port: u16,
        args: &[&str],
    ) -> anyhow::Result<SocketAddr> {
        let operations = ports::free()?;
        let mut all = vec![format!("--listen=127.0.0.1:{port}")];
        all.extend(args.iter().map(|arg| (*arg).to_owned()));
        let process = self.spawn("scheduler-ext", "scheduler-ext", operations, &all).await?;
        let url = format!("http://127.0.0.1:{port}");
        self.extender = Some(RunningExtender { process, url, operations });
        Ok(([127, 0, 0, 1], port).into())
    }

    /// The running extender.
    pub fn extender(&self) -> anyhow::Result<&RunningExtender> {
        self.extender.as_ref().context("the extender runs")
    }

    /// Kills the extender; the scheduler keeps calling it.
    pub fn kill_extender(&mut self) {
        self.extender = None;
    }

    /// The log of the running extender.
    pub fn extender_log(&self) -> String {
        self.extender.as_ref().map(|it| it.process.tail(usize::MAX)).unwrap_or_default()
    }
}
