//! Interns strings, and what slices have in common.

use std::hash::Hash;
use std::sync::Arc;

use crate::device::Device;
use crate::hash::HashSet;
use crate::likeness::{self, Column, Frame, Likeness};
use crate::name::QualifiedName;
use crate::slice::Slice;

/// The interned values.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interner {
    texts: HashSet<Arc<str>>,
    /// Lists of attribute names; devices of one kind have the same list.
    schemas: HashSet<Arc<[QualifiedName]>>,
    frames: HashSet<Arc<Frame>>,
    columns: HashSet<Column>,
    /// Lists of the names of a slice's devices.
    rosters: HashSet<Arc<[Arc<str>]>>,
    /// The number of strings and columns at which the next clean-up runs.
    limit: usize,
}

impl Interner {
    pub(crate) fn text(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return known.clone();
        }
        let text: Arc<str> = text.into();
        self.texts.insert(text.clone());
        text
    }

    pub(crate) fn optional(&mut self, text: Option<&String>) -> Arc<str> {
        self.text(text.map_or("", |text| text))
    }

    pub(crate) fn texts(&mut self, texts: Option<&Vec<String>>) -> Vec<Arc<str>> {
        texts.into_iter().flatten().map(|text| self.text(text)).collect()
    }

    pub(crate) fn schema(&mut self, names: Vec<QualifiedName>) -> Arc<[QualifiedName]> {
        intern_list(&mut self.schemas, names)
    }

    /// What a slice has in common with others.
    pub(crate) fn likeness(&mut self, slice: &Slice) -> Likeness {
        let names = self.names(&slice.devices);
        let columns = (0..names.len()).map(|number| {
            let column = likeness::column(&slice.devices, &names, number);
            intern_list(&mut self.columns, column)
        });
        let columns = columns.collect();
        let frame = slice.frame(names);
        let frame = match self.frames.get(&frame) {
            Some(known) => known.clone(),
            None => Arc::new(frame),
        };
        self.frames.insert(frame.clone());
        let roster = slice.devices.iter().map(|device| device.id.device.clone()).collect();
        Likeness { frame, columns, roster: intern_list(&mut self.rosters, roster) }
    }

    /// The names of all attributes of the devices; usually all devices have the same.
    fn names(&mut self, devices: &[Device]) -> Arc<[QualifiedName]> {
        let mut lists = devices.iter().map(|device| &device.attributes.names);
        match lists.next() {
            Some(first) if lists.all(|other| Arc::ptr_eq(first, other)) => first.clone(),
            _ => self.schema(likeness::names(devices)),
        }
    }

    /// Removes unused values once there are twice as many as after the last clean-up.
    pub(crate) fn tidy(&mut self) {
        if self.texts.len() + self.columns.len() > self.limit {
            self.shrink();
            self.limit = 2 * (self.texts.len() + self.columns.len()).max(1024);
        }
    }

    /// Removes unused values, containers first.
    fn shrink(&mut self) {
        self.frames.retain(|frame| Arc::strong_count(frame) > 1);
        self.columns.retain(|column| Arc::strong_count(column) > 1);
        self.rosters.retain(|roster| Arc::strong_count(roster) > 1);
        self.schemas.retain(|names| Arc::strong_count(names) > 1);
        self.texts.retain(|text| Arc::strong_count(text) > 1);
    }
}

fn intern_list<T: Hash + Eq>(known: &mut HashSet<Arc<[T]>>, list: Vec<T>) -> Arc<[T]> {
    if let Some(known) = known.get(list.as_slice()) {
        return known.clone();
    }
    let list: Arc<[T]> = list.into();
    known.insert(list.clone());
    list
}
