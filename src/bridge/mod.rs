//! bridge
pub mod js;
pub mod json;
pub mod pattern;
