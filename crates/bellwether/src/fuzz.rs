//! Readers that are not public, for fuzz targets. They may refuse what they read, and nothing worse.

use crate::hold::crash_mark;
use crate::line::name::{Layout, Name};
use crate::node::NodePath;
use crate::node::data::{NodeData, RecipeMark, Who};
use crate::queue::claimed_item::{EndRecord, Returned, ReturnedName};
use crate::queue::order::{Item, Rule};
use crate::two_phase;

/// Names of nodes of all layouts, and what is in nodes.
pub fn nodes(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let _ = NodePath::parse(&text);
    let _ = NodePath::parse_prefix(&text);
    let _ = Name::parse(&text);
    for layout in Layout::ALL {
        let names: Vec<_> = text.lines().map(str::to_owned).collect();
        drop(layout.contenders(names).collect::<Vec<_>>());
    }
    let _ = NodeData::from_data(bytes);
    let _ = RecipeMark::from_data(bytes);
    let _ = Who::from_data(bytes);
    let _ = crash_mark::read(bytes);
    let _ = Item::parse(Rule::FIFO, text.clone().into_owned());
    let _ = ReturnedName::parse(&text);
    let _ = Returned::from_data(bytes);
    let _ = EndRecord::from_data(bytes);
    two_phase::read_any_node(&text, bytes);
}
