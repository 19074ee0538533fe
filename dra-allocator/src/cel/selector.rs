//! Selectors of classes and claims, and a cache of their compiled forms.

use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use super::compiled::{CompiledSelector, compile};
use super::error::CompileError;
use crate::budget::Budget;
use crate::hash::HashMap;

/// The maximum size of the cache, in bytes. The selectors of a cluster take some hundred kilobytes;
/// those of a hostile claim, which may be 1.5 MB of text, take a hundred times their text.
const MAX_BYTES: usize = 32 << 20;

/// What an entry takes besides the text and the compiled form, about.
const ENTRY: usize = 128;

/// The compiled form of an expression, once it is known. Failures are remembered too.
type Slot = Mutex<Option<Result<CompiledSelector, CompileError>>>;

/// The compiled expressions by text. Compilation takes longer than a search, and many claims have
/// the same selectors.
#[derive(Default)]
struct KnownExpressions {
    slots: HashMap<Arc<str>, Arc<Slot>>,
    bytes: usize,
}

static KNOWN: LazyLock<Mutex<KnownExpressions>> = LazyLock::new(Mutex::default);

/// A selector expression of a class or a claim, compiled on first use.
///
/// An expression that does not compile causes an error only when it is evaluated on a device.
#[derive(Clone)]
pub struct Selector {
    expression: Arc<str>,
    slot: Arc<Slot>,
}

impl Selector {
    /// Creates a selector. Equal texts are compiled once.
    pub fn new(expression: impl Into<Arc<str>>) -> Self {
        let expression = expression.into();
        let slot = lock(&KNOWN).slot(&expression);
        Self { expression, slot }
    }

    /// The text of the expression.
    pub fn expression(&self) -> &Arc<str> {
        &self.expression
    }

    /// The compiled form. A failure is remembered, except [`CompileError::OutOfBudget`].
    pub fn compiled(&self, budget: &Budget<'_>) -> Result<CompiledSelector, CompileError> {
        if let Some(known) = &*lock(&self.slot) {
            return known.clone();
        }
        // Under no lock, as this takes up to a tenth of a second.
        let compiled = compile(&self.expression, budget);
        if !matches!(compiled, Err(CompileError::OutOfBudget)) {
            let bytes = compiled.as_ref().map_or(ENTRY, CompiledSelector::bytes);
            lock(&KNOWN).make_room(&self.expression, &self.slot, bytes);
            *lock(&self.slot) = Some(compiled.clone());
        }
        compiled
    }
}

impl KnownExpressions {
    fn slot(&mut self, expression: &Arc<str>) -> Arc<Slot> {
        if let Some(slot) = self.slots.get(expression) {
            return slot.clone();
        }
        let slot = Arc::<Slot>::default();
        self.add(expression, &slot, 0);
        slot
    }

    /// Counts a compiled form. The selector may be older than the cache's last clearing.
    fn make_room(&mut self, expression: &Arc<str>, slot: &Arc<Slot>, bytes: usize) {
        match self.slots.get(expression) {
            Some(known) if Arc::ptr_eq(known, slot) && self.bytes + bytes <= MAX_BYTES => {
                self.bytes += bytes;
            }
            _ => self.add(expression, slot, bytes),
        }
    }

    /// Adds an entry. If the cache is full, it forgets all others: selectors that are still in use
    /// are compiled again.
    fn add(&mut self, expression: &Arc<str>, slot: &Arc<Slot>, bytes: usize) {
        let bytes = bytes + expression.len() + ENTRY;
        if self.bytes + bytes > MAX_BYTES {
            for (_, forgotten) in self.slots.drain() {
                *lock(&forgotten) = None;
            }
            self.bytes = 0;
        }
        self.bytes += bytes;
        self.slots.insert(expression.clone(), slot.clone());
    }
}

impl fmt::Debug for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Selector").field(&self.expression).finish()
    }
}

/// A poisoned lock is harmless: the value is always complete.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
