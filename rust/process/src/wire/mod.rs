//! Messages between the supervisor and a worker; `python/guerdon/_worker/wire.py` has the other
//! side.
//!
//! Messages of a call arrive before the `DONE` of its frame, and before the page's progress moves
//! on.

// The format, all numbers little-endian.
//
// Messages to the worker have a header of 24 bytes and a body:
//
// ```text
// u64 length of the body   u64 frame   u16 function   u8 kind of the calls   u8 message   u32 calls
// message 1 RUN:   u32 length of the names (0xFFFFFFFF: by position)   names, each ended by a NUL
//                  not for sample calls:  calls × u32 samples of the call
//                  for finish calls:      f64 score of each sample, NaN where there is none
//                  the values (`guerdon_wire::columns`)
// message 2 CLOSE: end, after the calls sent before it
// message 3 ENVIRONMENT: what the function finds in its environment, NAME=value each ended by a NUL
// ```
//
// Messages to the supervisor have a header of 16 bytes and a body. `text` is `u32 length of the
// reason, u32 length of the traceback (0xFFFFFFFF: none)`, both texts:
//
// ```text
// u32 length of the body   u8 message   u8 flags   u16 call   u64 frame
// 1 READY
// 2 DONE          `call` is the number of calls that ran; flag 1: the worker ends itself now
// 3 FAIL          f64 retry after (NaN: none), u16 status of the other side (0xFFFF: unknown),
//                 text; flag 1: retryable, flag 2: by the timeout signal
// 4 CELLS         u32 cells, per cell u8 status and f64 value, then to the end of the body per
//                 bad cell u32 index, u32 length, reason
// 5 RECORD        JSON
// 6 SETUP_FAILED  text; flag 2: by the timeout signal
// 7 BEGUN         a call with `max_output` begins; flag 1: its function was just loaded or set up,
//                 and the worker waits for the page to say that this output is counted
// 8 USED          f64 tokens
// ```

mod from_worker;
mod to_worker;

pub(crate) use from_worker::{Message, Parser, Text, WireError};
pub(crate) use to_worker::{close, environment, run};

/// Length in place of an absent text.
const NONE: u32 = u32::MAX;

fn count(number: usize) -> [u8; 4] {
    u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes()
}
