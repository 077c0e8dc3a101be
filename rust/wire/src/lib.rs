//! Layout of the bytes that pass between processes: values of calls, and items, of which messages
//! consist. The types of the messages are in the lanes that send them.

#![forbid(unsafe_code)]

pub mod byte_reader;
pub mod columns;
pub mod encoded_values;
pub mod items;
pub mod sent_constants;
pub mod text;
