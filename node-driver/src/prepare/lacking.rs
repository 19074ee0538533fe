//! What the host's interfaces lack after pods had them, until somebody tells it.

use std::mem;
use std::sync::{Mutex, PoisonError};
use tokio::sync::Notify;

/// Most of it that is kept while nobody tells it.
const MOST: usize = 100;

/// Sentences for a person.
#[derive(Debug, Default)]
pub struct Lacking {
    texts: Mutex<Vec<String>>,
    more: Notify,
}

impl Lacking {
    /// Adds one.
    pub(super) fn tell(&self, text: String) {
        let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        if texts.len() < MOST {
            texts.push(text);
        }
        self.more.notify_one();
    }

    /// Takes all, once there are any.
    pub async fn next(&self) -> Vec<String> {
        loop {
            let texts = mem::take(&mut *self.texts.lock().unwrap_or_else(PoisonError::into_inner));
            if !texts.is_empty() {
                return texts;
            }
            self.more.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_added_is_taken_once_and_has_an_end() {
        let lacking = Lacking::default();
        lacking.tell("a route".to_owned());
        lacking.tell("an address".to_owned());
        assert_eq!(lacking.next().await, ["a route", "an address"]);
        (0..2 * MOST).for_each(|number| lacking.tell(number.to_string()));
        assert_eq!(lacking.next().await.len(), MOST);
    }
}
