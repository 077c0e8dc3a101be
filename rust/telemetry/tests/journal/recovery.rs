//! Streams that writers left: what is whole in them becomes a file, and what can't be read stays.

use std::fs;
use std::process::Command;

use guerdon_telemetry::journal::{Journal, recover};
use proptest::prelude::*;

use crate::fixtures::{LONG, config, empty_folder, files, other_stream, parts, sources, stream, stream_of_unions};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// A stream that was cut anywhere keeps all of its whole messages, and is read once.
    #[test]
    fn a_stream_that_breaks_off_keeps_its_whole_messages(cuts in prop::collection::vec(0.0..1.0_f64, 1..12)) {
        let (folder, bytes) = (empty_folder(), stream());
        for (number, cut) in cuts.into_iter().enumerate() {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a share")]
            let length = (bytes.len() as f64 * cut) as usize;
            let stem = format!("a-r0-1-{number:05}");
            fs::write(folder.0.join(format!("{stem}.arrows")), &bytes[..length]).unwrap();
            let recovered = recover(&folder.0).unwrap();
            prop_assert!(recovered.left.is_empty());
            prop_assert!(files(&folder, "arrows").is_empty() && files(&folder, "tmp").is_empty());
            let finished = folder.0.join(format!("{stem}.parquet"));
            prop_assert_eq!(recovered.rows % 40, 0);
            prop_assert_eq!(finished.exists(), recovered.rows > 0);
            prop_assert!(recovered.rows <= 120);
            if finished.exists() {
                let part = parts(&folder).pop().unwrap().0;
                prop_assert_eq!(part.num_rows() as u64, recovered.rows);
                fs::remove_file(finished).unwrap();
            }
        }
    }
}

/// Fault: a stream in the folder is damaged, of a newer version, or no journal's at all.
/// Sees: it stays as it is, and the reader says why; only what ends within its head goes.
#[test]
fn a_stream_that_can_not_be_converted_stays() {
    let (folder, bytes) = (empty_folder(), stream());
    let damaged_at = |at: usize| {
        let mut bytes = bytes.to_vec();
        bytes[at..at + 8].copy_from_slice(&[0x5a; 8]);
        bytes
    };
    let first = 8 + i32::from_le_bytes(bytes[4..8].try_into().unwrap()) as usize;
    let stay = [
        ("a-r0-1-00000.arrows", damaged_at(0)),
        ("a-r0-1-00001.arrows", damaged_at(first)),
        ("a-r0-1-00002.arrows", other_stream(Some("2"))),
        ("a-r0-1-00003.arrows", other_stream(None)),
        ("a-r0-1-00004.arrows", [bytes, &[0; 512][..]].concat()),
        ("a-r0-1-00008.arrows", stream_of_unions()),
    ];
    let foreign = [("data.arrows", other_stream(None)), ("data.parquet", Vec::new()), ("empty.arrows", Vec::new())];
    for (name, bytes) in stay.iter().chain(&foreign) {
        fs::write(folder.0.join(name), bytes).unwrap();
    }
    for (part, length) in [(5, 0), (6, 5), (7, first - 1)] {
        fs::write(folder.0.join(format!("a-r0-1-{part:05}.arrows")), &bytes[..length]).unwrap();
    }
    for _ in 0..2 {
        let recovered = recover(&folder.0).unwrap();
        assert_eq!((recovered.parts, recovered.rows, recovered.cut), (0, 0, 0));
        let left: Vec<String> =
            recovered.left.iter().map(|(path, _)| path.file_name().unwrap().to_string_lossy().into_owned()).collect();
        assert_eq!(left, stay.each_ref().map(|(name, _)| *name));
    }
    for (name, bytes) in stay.iter().chain(&foreign) {
        assert_eq!(&fs::read(folder.0.join(name)).unwrap(), bytes, "{name}");
    }
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), stay.len() + foreign.len());
}

/// Fault: SIGKILL between the two last steps of a part, when its file has its name and the stream
/// is still there.
/// Sees: nothing; the stream goes, and each row is there once.
#[test]
fn a_stream_whose_file_is_there_goes() {
    let folder = empty_folder();
    let path = folder.0.join("a-r0-1-00000.arrows");
    fs::write(&path, stream()).unwrap();
    assert_eq!(recover(&folder.0).unwrap().rows, 120);
    fs::write(&path, stream()).unwrap();
    assert_eq!(recover(&folder.0).unwrap(), guerdon_telemetry::journal::Recovery::default());
    assert!(!path.exists());
    assert_eq!(parts(&folder).iter().map(|(part, _)| part.num_rows()).sum::<usize>(), 120);
}

/// Fault: a named pipe in the folder has the name of a stream.
/// Sees: nothing; who opened it would wait for its other end.
#[test]
fn a_pipe_with_the_name_of_a_stream_is_left_alone() {
    let folder = empty_folder();
    let pipe = folder.0.join("a-r0-1-00000.arrows");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    fs::write(folder.0.join("a-r0-1-00001.arrows"), stream()).unwrap();
    let recovered = recover(&folder.0).unwrap();
    assert_eq!((recovered.rows, recovered.left.len()), (120, 0));
    assert!(pipe.exists());
}

/// Fault: two readers recover a folder at a time, and a run that begins does too.
/// Sees: nothing; each row is there once.
#[test]
fn several_recover_at_a_time() {
    let folder = empty_folder();
    for part in 0..30 {
        fs::write(folder.0.join(format!("a-r0-1-{part:05}.arrows")), stream()).unwrap();
    }
    let journal = Journal::start(config(&folder.0, &["each"], &[], 1 << 30), sources()).unwrap();
    let rows: u64 = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..3).map(|_| scope.spawn(|| recover(&folder.0).unwrap())).collect();
        readers.into_iter().map(|reader| reader.join().unwrap()).map(|one| one.rows).sum()
    });
    assert!(journal.close(LONG));
    assert!(rows <= 30 * 120);
    assert!(files(&folder, "arrows").is_empty() && files(&folder, "tmp").is_empty());
    assert_eq!(parts(&folder).iter().map(|(part, _)| part.num_rows()).sum::<usize>(), 30 * 120);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Whatever bytes a stream has: nothing fails but this stream, and rows that can't be read stay
    /// where they are.
    #[test]
    fn a_stream_of_any_bytes_harms_nobody(flips in prop::collection::vec((any::<usize>(), 1_u8..), 1..4)) {
        let (folder, mut bytes) = (empty_folder(), stream().to_vec());
        for (at, flip) in flips {
            let length = bytes.len();
            bytes[at % length] ^= flip;
        }
        let path = folder.0.join("a-r0-1-00000.arrows");
        fs::write(&path, &bytes).unwrap();
        let recovered = recover(&folder.0).unwrap();
        prop_assert_eq!(path.exists(), recovered.left.len() == 1);
        prop_assert!(files(&folder, "tmp").is_empty());
    }
}
