//! Rows of tables as bytes: keys keep their order, rows come back, damage is refused.
//!
//! `cargo test -p holdfast-core --test all rows -- --ignored` writes the fixture again, which is only
//! right for a new version in a new folder.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::cmp::Ordering;
use std::path::{Path, PathBuf};

use holdfast_core::ErrorKind;
use holdfast_core::rows::{
    ABSENT, BuiltColumn, Column, ColumnType, decode_entries, decode_found, encode_entries,
    encode_keys, encode_prefix,
};
use proptest::prelude::*;

/// The buffers of an Arrow array.
#[derive(Clone, Debug, Default)]
struct Buffers {
    rows: usize,
    validity: Vec<u8>,
    offsets: Vec<u8>,
    values: Vec<u8>,
}

impl Buffers {
    fn column(&self, layout: ColumnType) -> Column<'_> {
        let buffers = [&self.validity, &self.offsets, &self.values];
        let buffers = buffers.map(|buffer| Some(buffer.as_slice()));
        Column::new("c", layout, self.rows, 0, buffers).unwrap()
    }

    fn of(built: &BuiltColumn) -> Self {
        Self {
            rows: built.rows(),
            validity: built.validity.clone(),
            offsets: built.offsets.clone(),
            values: built.values.clone(),
        }
    }
}

fn valid(nulls: &[bool]) -> Vec<u8> {
    let mut bits = vec![0; nulls.len().div_ceil(8)];
    for (at, null) in nulls.iter().enumerate() {
        bits[at / 8] |= u8::from(!null) << (at % 8);
    }
    bits
}

fn strings(values: &[Option<Vec<u8>>]) -> Buffers {
    let mut buffers = Buffers {
        rows: values.len(),
        validity: valid(&values.iter().map(Option::is_none).collect::<Vec<_>>()),
        offsets: 0i32.to_le_bytes().to_vec(),
        ..Buffers::default()
    };
    for value in values {
        buffers.values.extend(value.iter().flatten());
        let end = buffers.values.len() as i32;
        buffers.offsets.extend(end.to_le_bytes());
    }
    buffers
}

fn fixed<const N: usize>(values: &[Option<[u8; N]>]) -> Buffers {
    Buffers {
        rows: values.len(),
        validity: valid(&values.iter().map(Option::is_none).collect::<Vec<_>>()),
        offsets: Vec::new(),
        values: values.iter().flat_map(|v| v.unwrap_or([0; N])).collect(),
    }
}

fn keys(columns: &[Column<'_>]) -> Vec<Vec<u8>> {
    let packed = encode_keys(columns).unwrap();
    let mut rest = packed.as_slice();
    let mut keys = Vec::new();
    while let Some((len, tail)) = rest.split_first_chunk::<4>() {
        let (key, tail) = tail.split_at(u32::from_le_bytes(*len) as usize);
        keys.push(key.to_vec());
        rest = tail;
    }
    keys
}

fn assert_ordered(keys: &[Vec<u8>], expected: &[Ordering]) {
    for (pair, expected) in keys.chunks(2).zip(expected) {
        assert_eq!(pair[0].cmp(&pair[1]), *expected, "{pair:02x?}");
    }
}

/// -0.0 is 0.0, and NaN is above all.
fn compared(a: f64, b: f64) -> Ordering {
    let by_nan = || a.is_nan().cmp(&b.is_nan());
    a.partial_cmp(&b).unwrap_or_else(by_nan)
}

proptest! {
    #[test]
    fn numbers_keep_their_order(pairs in prop::collection::vec(any::<(i64, i64, f64, f64)>(), 1..40)) {
        let edges = [(i64::MIN, i64::MAX, -0.0, 0.0), (-1, 0, f64::NAN, f64::INFINITY)];
        let pairs: Vec<_> = pairs.into_iter().chain(edges).collect();
        let ints: Vec<_> = pairs.iter().flat_map(|p| [p.0, p.1]).collect();
        let floats: Vec<_> = pairs.iter().flat_map(|p| [p.2, p.3]).collect();
        let ordering: Vec<_> = pairs.iter().map(|p| p.0.cmp(&p.1)).collect();
        let buffers = fixed(&ints.iter().map(|v| Some(v.to_le_bytes())).collect::<Vec<_>>());
        assert_ordered(&keys(&[buffers.column(ColumnType::Signed(8))]), &ordering);
        let ordering: Vec<_> = ordering.iter().zip(&pairs).map(|(_, p)| (p.0 as u64).cmp(&(p.1 as u64))).collect();
        assert_ordered(&keys(&[buffers.column(ColumnType::Unsigned(8))]), &ordering);
        let ordering: Vec<_> = pairs.iter().map(|p| compared(p.2, p.3)).collect();
        let buffers = fixed(&floats.iter().map(|v| Some(v.to_le_bytes())).collect::<Vec<_>>());
        assert_ordered(&keys(&[buffers.column(ColumnType::Float(8))]), &ordering);
        let narrow: Vec<_> = floats.iter().map(|v| *v as f32).collect();
        let ordering: Vec<_> = narrow.chunks(2).map(|p| compared(p[0].into(), p[1].into())).collect();
        let buffers = fixed(&narrow.iter().map(|v| Some(v.to_le_bytes())).collect::<Vec<_>>());
        assert_ordered(&keys(&[buffers.column(ColumnType::Float(4))]), &ordering);
    }

    #[test]
    fn columns_are_compared_one_after_the_other(
        rows in prop::collection::vec((prop::collection::vec(0..3u8, 0..4), any::<i16>()), 2..40),
    ) {
        let names: Vec<_> = rows.iter().map(|row| Some(row.0.clone())).collect();
        let numbers: Vec<_> = rows.iter().map(|row| Some(row.1.to_le_bytes())).collect();
        let (names, numbers) = (strings(&names), fixed(&numbers));
        let columns = [names.column(ColumnType::Bytes), numbers.column(ColumnType::Signed(2))];
        let mut sorted: Vec<_> = keys(&columns).into_iter().zip(&rows).collect();
        sorted.sort();
        prop_assert!(sorted.is_sorted_by(|a, b| a.1 <= b.1));
        let first = Column::new("c", ColumnType::Bytes, 1, 0, [None, Some(&names.offsets), Some(&names.values)]);
        let prefix = encode_prefix(&[first.unwrap()]).unwrap();
        for (key, row) in &sorted {
            prop_assert_eq!(key.starts_with(&prefix), row.0 == rows[0].0);
        }
    }

    #[test]
    fn rows_come_back(
        rows in prop::collection::vec(
            (any::<(bool, i32)>(), prop::collection::vec(any::<u8>(), 0..9), any::<(Option<bool>, Option<i128>)>(), prop::option::of(prop::collection::vec(any::<u8>(), 0..300))),
            0..40,
        ),
    ) {
        let key_types = [ColumnType::Bits, ColumnType::Bytes, ColumnType::Signed(4)];
        let value_types = [ColumnType::Bytes, ColumnType::Bits, ColumnType::Signed(16)];
        let bits = |values: Vec<Option<bool>>| Buffers {
            rows: values.len(),
            validity: valid(&values.iter().map(Option::is_none).collect::<Vec<_>>()),
            offsets: Vec::new(),
            values: valid(&values.iter().map(|v| *v != Some(true)).collect::<Vec<_>>()),
        };
        let keys = [
            bits(rows.iter().map(|r| Some(r.0.0)).collect()),
            strings(&rows.iter().map(|r| Some(r.1.clone())).collect::<Vec<_>>()),
            fixed(&rows.iter().map(|r| Some(r.0.1.to_le_bytes())).collect::<Vec<_>>()),
        ];
        let values = [
            strings(&rows.iter().map(|r| r.3.clone()).collect::<Vec<_>>()),
            bits(rows.iter().map(|r| r.2.0).collect()),
            fixed(&rows.iter().map(|r| r.2.1.map(i128::to_le_bytes)).collect::<Vec<_>>()),
        ];
        let key_columns: Vec<_> = keys.iter().zip(key_types).map(|(b, t)| b.column(t)).collect();
        let value_columns: Vec<_> = values.iter().zip(value_types).map(|(b, t)| b.column(t)).collect();
        let entries = encode_entries(&key_columns, &value_columns).unwrap();
        let (found_keys, found_values) =
            decode_entries(&key_types, &value_types, rows.len(), &entries).unwrap();
        for (built, types) in [(&found_keys, key_types), (&found_values, value_types)] {
            prop_assert!(built.iter().all(|column| column.rows() == rows.len()));
            prop_assert!(built.iter().all(|column| types.len() == built.len() && column.nulls <= rows.len()));
        }
        // Equal rows have equal bytes, whatever is in the place of a null.
        let again_keys: Vec<_> = found_keys.iter().map(Buffers::of).collect();
        let again_values: Vec<_> = found_values.iter().map(Buffers::of).collect();
        let again_keys: Vec<_> = again_keys.iter().zip(key_types).map(|(b, t)| b.column(t)).collect();
        let again_values: Vec<_> = again_values.iter().zip(value_types).map(|(b, t)| b.column(t)).collect();
        prop_assert_eq!(encode_entries(&again_keys, &again_values).unwrap(), entries);
    }

    #[test]
    fn forged_bytes_are_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let types = [ColumnType::Bytes, ColumnType::Float(4)];
        let _ = decode_entries(&types, &types, 3, &bytes);
        let _ = decode_found(&types, 3, &bytes);
        let long = [4u32.to_le_bytes().as_slice(), &[0; 4], &bytes, &[0; 4]].concat();
        let _ = decode_entries(&types, &types, 3, &long);
    }
}

#[test]
fn a_null_in_a_key_is_refused_with_its_place() {
    let column = fixed(&[Some([1u8]), None]);
    let column = column.column(ColumnType::Unsigned(1));
    let refused = encode_keys(&[column]).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    let text = refused.to_string();
    assert!(text.contains("\"c\"") && text.contains("row 1"), "{text}");
}

#[test]
fn a_slice_of_an_array_begins_where_its_offset_says() {
    let column = fixed(&[Some([1u8]), None, Some([3])]);
    let buffers = [Some(column.validity.as_slice()), None, Some(&column.values)];
    let slice = Column::new("c", ColumnType::Unsigned(1), 1, 2, buffers).unwrap();
    assert_eq!(keys(&[slice]), [[3]]);
}

#[test]
fn columns_that_do_not_fit_are_refused() {
    let short = Column::new(
        "c",
        ColumnType::Float(8),
        2,
        0,
        [None, None, Some(&[0; 15])],
    );
    assert_eq!(short.unwrap_err().kind(), ErrorKind::InvalidInput);
    let (one, two) = (fixed(&[Some([1u8])]), fixed(&[Some([1u8]), Some([2])]));
    let uneven = [&one, &two].map(|column| column.column(ColumnType::Unsigned(1)));
    assert_eq!(
        encode_keys(&uneven).unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
    assert_eq!(
        encode_prefix(&uneven[1..]).unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
    for code in ["", "i3", "f16", "O"] {
        assert_eq!(
            ColumnType::parse(code).unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
    }
}

#[test]
fn keys_that_are_not_there_are_null_in_every_column() {
    let found = [
        ABSENT.to_le_bytes().as_slice(),
        &2u32.to_le_bytes(),
        &[1, 7],
    ]
    .concat();
    let columns = decode_found(&[ColumnType::Unsigned(1)], 2, &found).unwrap();
    assert_eq!(
        (columns[0].validity.as_slice(), columns[0].nulls),
        (&[2][..], 1)
    );
    assert_eq!(columns[0].values, [0, 7]);
}

const TYPES: [&str; 13] = [
    "b1", "i1", "i2", "i4", "i8", "i16", "u1", "u2", "u4", "u8", "f4", "f8", "s",
];

fn fixture() -> PathBuf {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures");
    fixtures.join("rows-v1/entries.bin")
}

/// A row with a column of every type, as key and as value, and one whose values are null.
fn rows_of_every_type() -> Vec<u8> {
    let types = TYPES.map(|code| ColumnType::parse(code).unwrap());
    let columns = types.map(|layout| {
        let bytes = |width| [1u8, 0x80, 0xff, 0].repeat(4)[..width].to_vec();
        let value = match layout {
            ColumnType::Bits => vec![1],
            ColumnType::Bytes => return strings(&[Some(b"a\0b".to_vec()), Some(Vec::new())]),
            ColumnType::Float(4) => (-1.5f32).to_le_bytes().to_vec(),
            ColumnType::Float(_) => 2.25f64.to_le_bytes().to_vec(),
            ColumnType::Signed(width) | ColumnType::Unsigned(width) => bytes(usize::from(width)),
        };
        let zero = vec![0; value.len()];
        Buffers {
            rows: 2,
            validity: vec![3],
            offsets: Vec::new(),
            values: if layout == ColumnType::Bits {
                value
            } else {
                [value, zero].concat()
            },
        }
    });
    let nulls = columns.clone().map(|column| Buffers {
        validity: vec![1],
        ..column
    });
    let [keys, values] = [&columns, &nulls].map(|columns| -> Vec<_> {
        let typed = columns.iter().zip(types);
        typed
            .map(|(column, layout)| column.column(layout))
            .collect()
    });
    encode_entries(&keys, &values).unwrap()
}

#[test]
fn version_1_of_rows_stays_as_it_is() {
    assert_eq!(rows_of_every_type(), std::fs::read(fixture()).unwrap());
}

#[test]
#[ignore = "writes the fixture"]
fn regenerate() {
    std::fs::create_dir_all(fixture().parent().unwrap()).unwrap();
    std::fs::write(fixture(), rows_of_every_type()).unwrap();
}
