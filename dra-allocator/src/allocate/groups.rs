//! Compatibility groups: which devices may draw from the same counter set together.
//!
//! Follows `structured/internal/experimental/compatibility_groups.go`.

use std::sync::Arc;

use super::counters::is_allocated;
use crate::device::Device;
use crate::hash::HashMap;
use crate::inventory::Pool;
use crate::settings::Settings;
use crate::state::PoolState;

/// The groups that the devices on a counter set have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Common {
    /// No device draws from it.
    #[default]
    Free,
    /// The devices declare no groups.
    Groupless,
    /// The groups that all these devices declare.
    Groups(Vec<Arc<str>>),
}

impl Common {
    fn admits(&self, groups: &[Arc<str>]) -> bool {
        match self {
            Self::Free => true,
            Self::Groupless => groups.is_empty(),
            Self::Groups(common) => common.iter().any(|group| groups.contains(group)),
        }
    }

    fn add(&self, groups: &[Arc<str>]) -> Self {
        match self {
            Self::Free if groups.is_empty() => Self::Groupless,
            Self::Free => Self::Groups(groups.to_vec()),
            Self::Groups(common) if !groups.is_empty() => {
                Self::Groups(common.iter().filter(|g| groups.contains(g)).cloned().collect())
            }
            kept => kept.clone(),
        }
    }
}

/// A counter set: the number of its pool, and its name.
type SetId = (usize, Arc<str>);

/// The groups of all counter sets during a search.
#[derive(Debug, Default)]
pub(super) struct Groups {
    common: HashMap<SetId, Common>,
    /// Former values of changed entries, so that the search can backtrack.
    log: Vec<(SetId, Option<Common>)>,
}

impl Groups {
    /// The current length of the log.
    pub(super) fn mark(&self) -> usize {
        self.log.len()
    }

    /// Reverts all changes since a mark.
    pub(super) fn go_back(&mut self, mark: usize) {
        for (id, before) in self.log.drain(mark..).rev() {
            match before {
                Some(before) => self.common.insert(id, before),
                None => self.common.remove(&id),
            };
        }
    }

    /// Adds a device of this pool. Returns false if one of its counter sets excludes the device.
    pub(super) fn add(
        &mut self,
        (number, pool): (usize, &Pool<'_>),
        device: &Device,
        state: PoolState<'_>,
        settings: &Settings,
    ) -> bool {
        let mark = self.mark();
        for consumed in device.consumes_counters() {
            let id = (number, consumed.set.clone());
            let before = self.common.get(&id).cloned();
            let now =
                before.clone().unwrap_or_else(|| baseline(pool, &consumed.set, state, settings));
            if !now.admits(&consumed.compatibility_groups) {
                self.go_back(mark);
                return false;
            }
            self.common.insert(id.clone(), now.add(&consumed.compatibility_groups));
            self.log.push((id, before));
        }
        true
    }
}

/// The groups that a pool's allocated devices have in common on a counter set.
fn baseline(pool: &Pool<'_>, set: &Arc<str>, state: PoolState<'_>, settings: &Settings) -> Common {
    let allocated = pool.all_devices().filter(|device| is_allocated(device, state, settings));
    let consumptions = allocated.flat_map(Device::consumes_counters);
    let of_set = consumptions.filter(|consumed| consumed.set == *set);
    of_set.fold(Common::Free, |common, consumed| common.add(&consumed.compatibility_groups))
}
