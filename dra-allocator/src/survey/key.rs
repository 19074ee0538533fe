//! Keys of nodes: everything that determines a node's result, as a list of numbers.

use std::rc::Rc;
use std::sync::Arc;

use crate::budget::Budget;
use crate::cel::{Mentions, Selector};
use crate::claim::{Ask, Claim, Request};
use crate::inventory::{Inventory, Place};
use crate::likeness::Frame;
use crate::settings::Settings;
use crate::slice::Slice;
use crate::state::{AllocatedState, PoolState, Shares};

/// Computes keys for the nodes of one survey.
pub(super) struct Keys<'a> {
    inventory: &'a Inventory,
    state: &'a AllocatedState,
    mentions: Mentions,
    /// True if nodes can share results at all.
    can_share: bool,
    /// The mentioned columns, by frame. There are few frames.
    mentioned: Vec<(*const Frame, Rc<[usize]>)>,
    /// The distinct shares of devices that were met.
    shares: Vec<Shares>,
    key: Vec<usize>,
}

impl<'a> Keys<'a> {
    pub(super) fn new(
        inventory: &'a Inventory,
        claims: &[Claim],
        state: &'a AllocatedState,
        settings: &Settings,
        budget: &Budget<'_>,
    ) -> Self {
        let quirks = &settings.quirks;
        let counters_elsewhere =
            quirks.shared_counters_always_relevant && !inventory.counter_slices().is_empty();
        Self {
            inventory,
            state,
            mentions: mentions(inventory, claims, budget),
            can_share: inventory.shared_slices().is_empty()
                && !quirks.unordered
                && !counters_elsewhere,
            mentioned: Vec::new(),
            shares: Vec::new(),
            key: Vec::new(),
        }
    }

    /// The key of a node. Nodes with equal keys have the same result except for names. `None` if
    /// this cannot be established. A key is valid until the index changes.
    pub(super) fn of(&mut self, node: &str) -> Option<&[usize]> {
        if !self.can_share {
            return None;
        }
        self.key.clear();
        let Some(place) = self.inventory.place(node) else { return Some(&self.key) };
        let shape = place.shape.as_ref()?;
        // Declared features of the node matter only for such devices.
        let mut frames = shape.slices.iter().map(|slice| &slice.frame);
        if frames.any(|frame| !frame.skip_node_operations.is_empty()) {
            return None;
        }
        self.key.push(Arc::as_ptr(shape).addr());
        self.add_columns(place);
        let pools = place.slices.chunk_by(|a, b| a.pool == b.pool);
        pools.for_each(|slices| self.add_uses(slices));
        Some(&self.key)
    }

    /// Adds the values of the mentioned attributes. Columns are interned, so their addresses
    /// identify them.
    fn add_columns(&mut self, place: &Place) {
        for slice in &place.slices {
            let mentioned = self.mentioned(&slice.likeness.frame);
            let columns = &slice.likeness.columns;
            let columns = mentioned.iter().map(|number| &columns[*number]);
            self.key.extend(columns.map(|column| Arc::as_ptr(column).cast::<()>().addr()));
        }
    }

    fn mentioned(&mut self, frame: &Arc<Frame>) -> Rc<[usize]> {
        let address = Arc::as_ptr(frame);
        if let Some((_, known)) = self.mentioned.iter().find(|(known, _)| *known == address) {
            return known.clone();
        }
        let names = frame.names().iter().enumerate();
        let mentioned = names.filter(|(_, name)| match &self.mentions {
            Mentions::Any => true,
            Mentions::These(full) if name.as_str().contains('/') => full.contains(name.as_str()),
            Mentions::These(full) => {
                full.contains(&format!("{}/{}", frame.driver(), name.as_str()))
            }
        });
        let mentioned: Rc<[usize]> = mentioned.map(|(number, _)| number).collect();
        self.mentioned.push((address, mentioned.clone()));
        mentioned
    }

    /// Adds what is in use of a pool; `slices` are the pool's slices.
    fn add_uses(&mut self, slices: &[Arc<Slice>]) {
        let in_use = self.state.pool(&slices[0].pool);
        let devices: usize = slices.iter().map(|slice| slice.likeness.roster.len()).sum();
        let bits = self.key.len();
        self.key.resize(bits + devices.div_ceil(WORD), 0);
        let shares = self.key.len();
        self.key.push(0);
        if in_use.is_free() {
            return;
        }
        for name in in_use.devices() {
            let mut all = slices.iter().flat_map(|slice| &*slice.likeness.roster);
            // Usually both come from the index, which interns strings.
            let same = all.clone().position(|known| Arc::ptr_eq(known, name));
            let same = same.or_else(|| all.position(|known| known == name));
            if let Some(number) = same {
                self.key[bits + number / WORD] |= 1 << (number % WORD);
            }
        }
        if in_use.has_shares() {
            self.add_shares(slices, in_use);
            self.key[shares] = self.key.len() - shares;
        }
    }

    fn add_shares(&mut self, slices: &[Arc<Slice>], in_use: PoolState<'_>) {
        let devices = slices.iter().flat_map(|slice| &slice.devices);
        for (number, device) in devices.enumerate() {
            let Some(shares) = in_use.shares(&device.id.device) else { continue };
            let known = self.shares.iter().position(|known| known == shares);
            let known = known.unwrap_or_else(|| {
                self.shares.push(shares.clone());
                self.shares.len() - 1
            });
            self.key.extend([number, known]);
        }
    }
}

/// The number of bits in a word of the key.
const WORD: usize = usize::BITS as usize;

/// The attributes that a result for these claims can depend on.
fn mentions(inventory: &Inventory, claims: &[Claim], budget: &Budget<'_>) -> Mentions {
    let mut mentions = Mentions::default();
    for claim in claims {
        for ask in claim.requests.iter().flat_map(Request::asks) {
            let class = inventory.class(&ask.class);
            let selectors = class.into_iter().flat_map(|class| &class.selectors);
            selectors.chain(of_ask(ask)).for_each(|selector| add(&mut mentions, selector, budget));
        }
        let constraints = claim.constraints.iter();
        let attributes = constraints.filter_map(|constraint| constraint.kind.attribute());
        attributes.for_each(|name| mentions.add(name));
    }
    mentions
}

fn of_ask(ask: &Ask) -> impl Iterator<Item = &Selector> {
    let derived = ask.derived_attributes.iter().map(|(_, expression)| expression);
    ask.selectors.iter().flatten().chain(derived)
}

/// A selector that does not compile reads no attribute: it fails on every device. So does one that
/// the budget does not suffice for.
fn add(mentions: &mut Mentions, selector: &Selector, budget: &Budget<'_>) {
    if let Ok(compiled) = selector.compiled(budget) {
        compiled.add_mentions(mentions);
    }
}
