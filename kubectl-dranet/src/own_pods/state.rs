//! The state of a pod that this program created.

use crate::text::string;
use serde_json::Value;
use std::fmt;

/// The container whose state is that of the pod.
pub(crate) const MAIN: &str = "main";

/// Reasons of waiting containers that do not go away by waiting.
const HOPELESS: [&str; 6] = [
    "CreateContainerConfigError",
    "CreateContainerError",
    "ErrImageNeverPull",
    "ImagePullBackOff",
    "InvalidImageName",
    "RunContainerError",
];

/// The state of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It has no node yet; the reason, if the scheduler gave one.
    Unscheduled(String),
    /// It has a node and waits for this.
    Starting(String),
    /// It runs and has this address.
    Running(String),
    /// Its main container has ended: whether with exit code 0, and its termination message.
    Ended { is_success: bool, message: String },
    /// It will never run, for this reason.
    Broken(String),
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, why) = match self {
            Self::Unscheduled(why) => ("it has no node", why),
            Self::Starting(why) => ("it has a node and does not run yet", why),
            Self::Running(address) => return write!(f, "it runs at {address}"),
            Self::Ended { is_success: true, message } => ("it has ended", message),
            Self::Ended { is_success: false, message } => ("it has failed", message),
            Self::Broken(why) => ("it will not run", why),
        };
        if why.is_empty() { f.write_str(what) } else { write!(f, "{what}: {why}") }
    }
}

impl State {
    /// Reads a pod.
    pub(crate) fn new(pod: &Value) -> Self {
        let status = &pod["status"];
        let mut containers = status["containerStatuses"].as_array().into_iter().flatten();
        let container = containers.find(|it| it["name"] == MAIN).unwrap_or(&Value::Null);
        let ended = &container["state"]["terminated"];
        match status["phase"].as_str() {
            // Others of the pod may still run.
            phase if ended.is_object() => {
                let is_success = phase != Some("Failed") && ended["exitCode"] == 0;
                return Self::Ended { is_success, message: string(&ended["message"]) };
            }
            Some("Succeeded" | "Failed") => {
                return Self::Broken(format!(
                    "{} {}",
                    string(&status["reason"]),
                    string(&status["message"])
                ));
            }
            _ => {}
        }
        if pod["metadata"]["deletionTimestamp"].is_string() {
            return Self::Broken("somebody deleted it".to_owned());
        }
        if !pod["spec"]["nodeName"].is_string() {
            let conditions = status["conditions"].as_array().into_iter().flatten();
            let mut conditions = conditions.filter(|it| it["status"] == "False");
            let said = conditions.find(|it| it["type"] == "PodScheduled");
            return Self::Unscheduled(said.map(|it| string(&it["message"])).unwrap_or_default());
        }
        let waiting = &container["state"]["waiting"];
        if let Some(reason) = waiting["reason"].as_str() {
            let why = format!("{reason} {}", string(&waiting["message"]));
            let why = why.trim_end().to_owned();
            return if HOPELESS.contains(&reason) {
                Self::Broken(why)
            } else {
                Self::Starting(why)
            };
        }
        match status["podIP"].as_str() {
            Some(address) if container["state"]["running"].is_object() => {
                Self::Running(address.to_owned())
            }
            _ => Self::Starting(String::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn states_are_said_in_words() {
        let of = |state: State| state.to_string();
        assert_eq!(of(State::Starting(String::new())), "it has a node and does not run yet");
        assert_eq!(of(State::Unscheduled("full".to_owned())), "it has no node: full");
        let ended = State::Ended { is_success: false, message: "exit 1".to_owned() };
        assert_eq!(of(ended), "it has failed: exit 1");
    }

    #[test]
    fn the_state_of_a_pod_is_read() {
        let container = |state: Value| json!([{ "name": "main", "state": state }]);
        let unscheduled = json!([
            { "type": "PodScheduled", "status": "False", "message": "0/2 nodes are available" },
        ]);
        let node = json!({ "nodeName": "a" });
        let cases = [
            (json!({}), json!({}), State::Unscheduled(String::new())),
            (
                json!({}),
                json!({ "phase": "Pending", "conditions": unscheduled }),
                State::Unscheduled("0/2 nodes are available".to_owned()),
            ),
            (node.clone(), json!({ "phase": "Pending" }), State::Starting(String::new())),
            (
                node.clone(),
                json!({ "containerStatuses": container(json!({ "waiting": {
                    "reason": "ContainerCreating",
                } })) }),
                State::Starting("ContainerCreating".to_owned()),
            ),
            (
                node.clone(),
                json!({ "containerStatuses": container(json!({ "waiting": {
                    "reason": "ImagePullBackOff", "message": "no such image",
                } })) }),
                State::Broken("ImagePullBackOff no such image".to_owned()),
            ),
            (
                node.clone(),
                json!({ "phase": "Running", "podIP": "10.0.0.1",
                    "containerStatuses": container(json!({ "running": {} })) }),
                State::Running("10.0.0.1".to_owned()),
            ),
            (
                node.clone(),
                json!({ "phase": "Succeeded", "containerStatuses": container(json!({
                    "terminated": { "exitCode": 0, "message": "12 Gb/sec" },
                })) }),
                State::Ended { is_success: true, message: "12 Gb/sec".to_owned() },
            ),
            (
                node.clone(),
                json!({ "phase": "Failed", "containerStatuses": container(json!({
                    "terminated": { "exitCode": 1, "message": "Couldn't connect" },
                })) }),
                State::Ended { is_success: false, message: "Couldn't connect".to_owned() },
            ),
            (
                node.clone(),
                json!({ "phase": "Running", "containerStatuses": [
                    { "name": "main", "state": { "terminated": { "exitCode": 127 } } },
                    { "name": "other", "state": { "running": {} } },
                ] }),
                State::Ended { is_success: false, message: String::new() },
            ),
            (
                node,
                json!({ "phase": "Failed", "reason": "DeadlineExceeded", "message": "too long" }),
                State::Broken("DeadlineExceeded too long".to_owned()),
            ),
        ];
        for (spec, status, expected) in cases {
            let pod = json!({ "spec": spec, "status": status });
            assert_eq!(State::new(&pod), expected, "{pod}");
        }
        let deleted = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } });
        assert_eq!(State::new(&deleted), State::Broken("somebody deleted it".to_owned()));
    }
}
