//! Collects what could not be restored on the host's interfaces after pods had them,
//! until it is reported.

use std::mem;
use std::sync::{Mutex, PoisonError};
use tokio::sync::Notify;

/// The most texts that are kept until they are reported.
const TEXTS_MAX: usize = 100;

/// Human-readable texts.
#[derive(Debug, Default)]
pub struct Lacking {
    texts: Mutex<Vec<String>>,
    more: Notify,
}

impl Lacking {
    /// Adds a text.
    pub(super) fn add(&self, text: String) {
        let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        if texts.len() < TEXTS_MAX {
            texts.push(text);
        }
        self.more.notify_one();
    }

    /// Waits until there are texts, and takes all of them.
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
    async fn texts_are_taken_once_and_their_number_is_limited() {
        let lacking = Lacking::default();
        lacking.add("a route".to_owned());
        lacking.add("an address".to_owned());
        assert_eq!(lacking.next().await, ["a route", "an address"]);
        (0..2 * TEXTS_MAX).for_each(|number| lacking.add(number.to_string()));
        assert_eq!(lacking.next().await.len(), TEXTS_MAX);
    }
}
