//! What the user chooses.

/// Settings that the input does not contain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The share of a NIC that each pod of a shared resource gets: a quantity of bits per second,
    /// such as `1G`. Without it, only the number of pods per NIC is limited, as by the device
    /// plugin.
    pub share: Option<String>,
}
