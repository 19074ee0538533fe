//! Costs that were counted before: most nodes of a shape are free in one of a few ways.

use super::{Cost, Mix, Room};
use std::collections::HashMap;

/// Costs with one mix, by the rooms that they follow from.
#[derive(Debug, Default)]
pub struct Costs {
    /// By the room with nothing in use, and by those before and after.
    known: HashMap<Room, HashMap<(Room, Room), Cost>>,
}

impl Costs {
    /// [`Cost::of`]; `mix` is the same in every call.
    pub fn of(&mut self, before: Room, after: Room, whole: &Room, mix: &Mix) -> Cost {
        let change = (before, after);
        if let Some(cost) = self.known.get(whole).and_then(|changes| changes.get(&change)) {
            return *cost;
        }
        let cost = Cost::of(&change.0, &change.1, whole, mix);
        self.known.entry(whole.clone()).or_default().insert(change, cost);
        cost
    }
}
