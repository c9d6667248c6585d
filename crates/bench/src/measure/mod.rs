//! Figures: how they are taken, summarised and shown.

pub mod awake;
pub mod context_switches;
pub mod cpu_time;
pub mod figures;
pub mod floor;
pub mod latency;
pub mod machine;
pub mod packets;
pub mod plot;
pub mod spread;
