//! The values that stages hand to each other and that the checkpoint stores. They know no stage.

pub mod checkpoint;
pub mod claim;
pub mod host_link;
pub mod plan;
