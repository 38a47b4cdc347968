//! Rows of Spark as columns: every type comes back, keys have Spark's bytes and hash, forged bytes
//! are an error.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use holdfast_core::ErrorKind;
use holdfast_core::rows::spark::{
    ArrowArray, Field, KeyColumn, RowColumns, SparkType, partition_of, write_keys, write_prefix,
};
use holdfast_core::rows::{BuiltColumn, Column};
use proptest::prelude::*;
use proptest::strategy::Union;

#[derive(Clone, Debug, PartialEq)]
enum Value {
    Null,
    /// The bytes of a number, little-endian.
    Fixed(Vec<u8>),
    Decimal(i128),
    Bytes(Vec<u8>),
    Months(i32),
    Interval(i32, i32, i64),
    Variant(Vec<u8>, Vec<u8>),
    Struct(Vec<Value>),
    List(Vec<Value>),
    Map(Vec<(Value, Value)>),
}

fn types() -> impl Strategy<Value = SparkType> {
    let simple = [
        SparkType::Null,
        SparkType::Boolean,
        SparkType::Integer(1),
        SparkType::Integer(2),
        SparkType::Integer(4),
        SparkType::Integer(8),
        SparkType::Float(4),
        SparkType::Float(8),
        SparkType::Decimal,
        SparkType::LongDecimal,
        SparkType::Text,
        SparkType::Binary,
        SparkType::Months,
        SparkType::Interval,
        SparkType::Variant,
    ];
    prop::sample::select(simple.to_vec()).prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(SparkType::Struct),
            inner
                .clone()
                .prop_map(|one| SparkType::List(Box::new([one]))),
            (inner.clone(), inner).prop_map(|(k, v)| SparkType::Map(Box::new([k, v]))),
        ]
    })
}

/// Types that a key may have.
fn key_types() -> impl Strategy<Value = SparkType> {
    types().prop_filter("in a key", in_key)
}

fn in_key(kind: &SparkType) -> bool {
    match kind {
        SparkType::Struct(kinds) => kinds.iter().all(in_key),
        SparkType::Months | SparkType::Interval | SparkType::Variant => false,
        SparkType::List(_) | SparkType::Map(_) => false,
        _ => true,
    }
}

fn values(kind: &SparkType) -> BoxedStrategy<Value> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..20);
    let some = match kind {
        SparkType::Null => Just(Value::Null).boxed(),
        SparkType::Boolean => any::<bool>()
            .prop_map(|v| Value::Fixed(vec![v.into()]))
            .boxed(),
        SparkType::Integer(width) | SparkType::Float(width) => {
            let width = usize::from(*width);
            let bytes = prop::collection::vec(any::<u8>(), width..=width);
            bytes.prop_map(Value::Fixed).boxed()
        }
        SparkType::Decimal => any::<i64>().prop_map(|v| Value::Decimal(v.into())).boxed(),
        SparkType::LongDecimal => {
            let shifted = (any::<i128>(), 0..128).prop_map(|(v, by)| Value::Decimal(v >> by));
            shifted.boxed()
        }
        SparkType::Text => any::<String>()
            .prop_map(|v| Value::Bytes(v.into_bytes()))
            .boxed(),
        SparkType::Binary | SparkType::Whole => bytes().prop_map(Value::Bytes).boxed(),
        SparkType::Months => any::<i32>().prop_map(Value::Months).boxed(),
        SparkType::Interval => {
            let micros = -1i64 << 50..1 << 50;
            let parts = (any::<i32>(), any::<i32>(), micros);
            parts
                .prop_map(|(months, days, micros)| Value::Interval(months, days, micros))
                .boxed()
        }
        SparkType::Variant => (bytes(), bytes())
            .prop_map(|(v, m)| Value::Variant(v, m))
            .boxed(),
        SparkType::Struct(kinds) => rows(kinds).prop_map(Value::Struct).boxed(),
        SparkType::List(kind) => prop::collection::vec(values(&kind[0]), 0..70)
            .prop_map(Value::List)
            .boxed(),
        SparkType::Map(kinds) => {
            let entries = (values(&kinds[0]), values(&kinds[1]));
            prop::collection::vec(entries, 0..4)
                .prop_map(Value::Map)
                .boxed()
        }
    };
    Union::new_weighted(vec![(1, Just(Value::Null).boxed()), (5, some)]).boxed()
}

fn rows(kinds: &[SparkType]) -> impl Strategy<Value = Vec<Value>> + use<> {
    kinds.iter().map(values).collect::<Vec<_>>()
}

/// A row as Spark's writers write it.
fn written(kinds: &[SparkType], values: &[Value]) -> Vec<u8> {
    let slots = kinds.len().div_ceil(64) * 8;
    let mut out = vec![0; slots + kinds.len() * 8];
    for (at, (kind, value)) in kinds.iter().zip(values).enumerate() {
        write_value(kind, value, &mut out, (0, at), slots + at * 8);
    }
    out
}

fn write_value(
    kind: &SparkType,
    value: &Value,
    out: &mut Vec<u8>,
    (nulls, number): (usize, usize),
    slot: usize,
) {
    let bytes = match (kind, value) {
        (_, Value::Null) => {
            out[nulls + number / 8] |= 1 << (number % 8);
            if *kind == SparkType::LongDecimal && nulls == 0 {
                let at = out.len() as u64;
                out[slot..slot + 8].copy_from_slice(&(at << 32).to_le_bytes());
                out.extend([0; 16]);
            }
            return;
        }
        (_, Value::Fixed(bytes)) => {
            out[slot..slot + bytes.len()].copy_from_slice(bytes);
            return;
        }
        (SparkType::Decimal, Value::Decimal(number)) => {
            out[slot..slot + 8].copy_from_slice(&number.to_le_bytes()[..8]);
            return;
        }
        (_, Value::Months(months)) => {
            out[slot..slot + 4].copy_from_slice(&months.to_le_bytes());
            return;
        }
        (_, Value::Decimal(number)) => shortest(*number),
        (_, Value::Bytes(bytes)) => bytes.clone(),
        (_, Value::Interval(months, days, micros)) => {
            let parts = [months.to_le_bytes(), days.to_le_bytes()].concat();
            [parts, micros.to_le_bytes().to_vec()].concat()
        }
        (_, Value::Variant(value, metadata)) => [
            &(value.len() as u32).to_le_bytes(),
            value.as_slice(),
            metadata,
        ]
        .concat(),
        (SparkType::Struct(kinds), Value::Struct(values)) => written(kinds, values),
        (SparkType::List(kind), Value::List(values)) => written_array(&kind[0], values),
        (SparkType::Map(kinds), Value::Map(entries)) => {
            let (keys, values): (Vec<_>, Vec<_>) = entries.iter().cloned().unzip();
            let keys = written_array(&kinds[0], &keys);
            let values = written_array(&kinds[1], &values);
            [&(keys.len() as u64).to_le_bytes(), keys.as_slice(), &values].concat()
        }
        other => panic!("{other:?}"),
    };
    let pointer = (out.len() as u64) << 32 | bytes.len() as u64;
    out[slot..slot + 8].copy_from_slice(&pointer.to_le_bytes());
    let end = match kind {
        SparkType::LongDecimal => out.len() + 16,
        _ => out.len() + bytes.len().next_multiple_of(8),
    };
    out.extend(bytes);
    out.resize(end, 0);
}

fn shortest(number: i128) -> Vec<u8> {
    let bytes = number.to_be_bytes();
    let fits = |from: &usize| {
        let rest = &bytes[*from..];
        let sign = if rest[0] >> 7 == 1 { 0xFF } else { 0 };
        bytes[..*from].iter().all(|byte| *byte == sign)
    };
    bytes[(0..16).rev().find(fits).unwrap()..].to_vec()
}

fn written_array(kind: &SparkType, values: &[Value]) -> Vec<u8> {
    let size = match kind {
        SparkType::Boolean => 1,
        SparkType::Integer(width) | SparkType::Float(width) => usize::from(*width),
        SparkType::Months => 4,
        _ => 8,
    };
    let slots = 8 + values.len().div_ceil(64) * 8;
    let mut out = (values.len() as u64).to_le_bytes().to_vec();
    out.resize(slots + (values.len() * size).next_multiple_of(8), 0);
    for (at, value) in values.iter().enumerate() {
        write_value(kind, value, &mut out, (8, at), slots + at * size);
    }
    out
}

/// The value that an array has in a row.
fn found(kind: &SparkType, array: &ArrowArray, row: usize) -> Value {
    let ArrowArray { own, children } = array;
    let is_valid = |column: &BuiltColumn| column.validity[row / 8] >> (row % 8) & 1 == 1;
    if !is_valid(own) {
        return Value::Null;
    }
    let fixed = |width: usize| own.values[row * width..(row + 1) * width].to_vec();
    let range = || {
        let end = |at: usize| i32::from_le_bytes(own.offsets[at * 4..][..4].try_into().unwrap());
        end(row) as usize..end(row + 1) as usize
    };
    match kind {
        SparkType::Null => Value::Null,
        SparkType::Boolean => Value::Fixed(vec![own.values[row / 8] >> (row % 8) & 1]),
        SparkType::Integer(width) | SparkType::Float(width) => {
            Value::Fixed(fixed(usize::from(*width)))
        }
        SparkType::Decimal | SparkType::LongDecimal => {
            Value::Decimal(i128::from_le_bytes(fixed(16).try_into().unwrap()))
        }
        SparkType::Text | SparkType::Binary | SparkType::Whole => {
            Value::Bytes(own.values[range()].to_vec())
        }
        SparkType::Months | SparkType::Interval => {
            let bytes = fixed(16);
            let part = |at: usize| i32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
            let nanos = i64::from_le_bytes(bytes[8..].try_into().unwrap());
            match kind {
                SparkType::Months => {
                    assert_eq!((part(4), nanos), (0, 0));
                    Value::Months(part(0))
                }
                _ => Value::Interval(part(0), part(4), nanos / 1000),
            }
        }
        SparkType::Variant => {
            let part = |at: usize| match found(&SparkType::Binary, &children[at], row) {
                Value::Bytes(bytes) => bytes,
                other => panic!("{other:?}"),
            };
            Value::Variant(part(0), part(1))
        }
        SparkType::Struct(kinds) => {
            let fields = kinds.iter().zip(children);
            Value::Struct(
                fields
                    .map(|(kind, child)| found(kind, child, row))
                    .collect(),
            )
        }
        SparkType::List(kind) => Value::List(
            range()
                .map(|at| found(&kind[0], &children[0], at))
                .collect(),
        ),
        SparkType::Map(kinds) => {
            let [keys, values] = children[0].children.as_slice() else {
                panic!("a map of {children:?}");
            };
            let entry = |at| (found(&kinds[0], keys, at), found(&kinds[1], values, at));
            Value::Map(range().map(entry).collect())
        }
    }
}

fn fields(kinds: &[SparkType]) -> Vec<Field> {
    let fields = kinds.iter().cloned().enumerate();
    let field = |(at, kind)| Field {
        name: format!("c{at}"),
        kind,
    };
    fields.map(field).collect()
}

fn columns(keys: &[SparkType], values: &[SparkType], checksums: bool) -> RowColumns {
    RowColumns {
        keys: fields(keys),
        values: fields(values),
        prefix: None,
        checksums,
    }
}

fn entry(key: &[u8], value: &[u8]) -> Vec<u8> {
    let lens = [key.len(), value.len()].map(|len| (len as u32).to_le_bytes());
    [lens.concat().as_slice(), key, value].concat()
}

/// Types, and some rows of them.
fn tables() -> impl Strategy<Value = (Vec<SparkType>, Vec<Vec<Value>>)> {
    prop::collection::vec(types(), 1..70).prop_flat_map(|kinds| {
        let rows = prop::collection::vec(rows(&kinds), 0..5);
        (Just(kinds), rows)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn every_row_comes_back((kinds, table) in tables()) {
        let columns = columns(&[SparkType::Integer(8)], &kinds, false);
        let number = |at| written(&columns.keys.iter().map(|f| f.kind.clone()).collect::<Vec<_>>(), &[Value::Fixed((at as u64).to_le_bytes().to_vec())]);
        let rows = table.iter().enumerate();
        let entries: Vec<u8> = rows.flat_map(|(at, row)| entry(&number(at), &written(&kinds, row))).collect();
        let arrays = columns.read_entries(table.len(), &entries).unwrap();
        for (at, row) in table.iter().enumerate() {
            prop_assert_eq!(found(&SparkType::Integer(8), &arrays[0], at), Value::Fixed((at as u64).to_le_bytes().to_vec()));
            for ((kind, array), value) in kinds.iter().zip(&arrays[1..]).zip(row) {
                prop_assert_eq!(&found(kind, array, at), value);
            }
        }
        for array in &arrays {
            prop_assert_eq!(array.own.rows(), table.len());
        }
    }

    #[test]
    fn forged_rows_never_panic(
        (kinds, table) in tables(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        cut in any::<prop::sample::Index>(),
        noise in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let columns = columns(&[], &kinds, false);
        for row in &table {
            let mut bytes = written(&kinds, row);
            for (at, byte) in &changes {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            let _ = columns.read_entries(1, &entry(&[], &bytes));
            bytes.truncate(cut.index(bytes.len()));
            let _ = columns.read_entries(1, &entry(&[], &bytes));
        }
        let _ = columns.read_entries(1, &entry(&[], &noise));
    }

    #[test]
    fn keys_have_the_bytes_of_spark((kinds, table) in prop::collection::vec(key_types(), 1..5).prop_flat_map(|kinds| {
        let rows = prop::collection::vec(rows(&kinds), 1..5);
        (Just(kinds), rows)
    })) {
        let columns = columns(&kinds, &[], false);
        let table: Vec<Vec<Value>> = table.into_iter().map(|row| {
            row.into_iter().zip(&kinds).map(|(value, kind)| normal(kind, value)).collect()
        }).collect();
        let entries: Vec<u8> = table.iter().flat_map(|row| entry(&written(&kinds, row), &[])).collect();
        let arrays = columns.read_entries(table.len(), &entries).unwrap();
        let keys: Vec<_> = kinds.iter().zip(&arrays).map(|(kind, array)| key_column(kind, array)).collect();
        let rows = write_keys(&keys, table.len(), None, kinds.len()).unwrap();
        for (at, row) in table.iter().enumerate() {
            prop_assert_eq!(rows.key(at), written(&kinds, row));
        }
    }
}

/// Numbers as Spark groups by them.
fn normal(kind: &SparkType, value: Value) -> Value {
    match (kind, value) {
        (SparkType::Float(4), Value::Fixed(bytes)) => {
            let value = f32::from_le_bytes(bytes.try_into().unwrap());
            let value = if value.is_nan() {
                f32::NAN
            } else {
                value + 0.0
            };
            Value::Fixed(value.to_le_bytes().to_vec())
        }
        (SparkType::Float(_), Value::Fixed(bytes)) => {
            let value = f64::from_le_bytes(bytes.try_into().unwrap());
            let value = if value.is_nan() {
                f64::NAN
            } else {
                value + 0.0
            };
            Value::Fixed(value.to_le_bytes().to_vec())
        }
        (SparkType::Struct(kinds), Value::Struct(values)) => {
            let values = values.into_iter().zip(kinds);
            Value::Struct(values.map(|(value, kind)| normal(kind, value)).collect())
        }
        (_, value) => value,
    }
}

fn key_column<'a>(kind: &SparkType, array: &'a ArrowArray) -> KeyColumn<'a> {
    let own = &array.own;
    let buffers = [&own.validity, &own.offsets, &own.values].map(|one| Some(one.as_slice()));
    let kinds = match kind {
        SparkType::Struct(kinds) => kinds.as_slice(),
        _ => &[],
    };
    let children = kinds.iter().zip(&array.children);
    KeyColumn {
        kind: kind.clone(),
        column: Column::new("k", kind.column(), own.rows(), 0, buffers).unwrap(),
        children: children
            .map(|(kind, child)| key_column(kind, child))
            .collect(),
    }
}

/// The hash of a row, which goes through its bytes and back.
fn hash(kinds: &[SparkType], row: &[Value]) -> i32 {
    let columns = columns(kinds, &[], false);
    let arrays = columns
        .read_entries(1, &entry(&written(kinds, row), &[]))
        .unwrap();
    let keys: Vec<_> = kinds
        .iter()
        .zip(&arrays)
        .map(|(kind, array)| key_column(kind, array))
        .collect();
    write_keys(&keys, 1, None, keys.len()).unwrap().hashes[0] as i32
}

#[test]
fn hashes_are_those_of_spark() {
    let fixed = |bytes: &[u8]| Value::Fixed(bytes.to_vec());
    let text = |text: &str| Value::Bytes(text.as_bytes().to_vec());
    // `select hash(...)` of Spark 4.3.
    let known = [
        (SparkType::Text, text("ada"), 544_031_635),
        (SparkType::Text, text("h\u{e9}llo"), 1_212_979_866),
        (SparkType::Text, text(""), 142_593_372),
        (
            SparkType::Integer(1),
            fixed(&(-7i8).to_le_bytes()),
            -1_618_159_745,
        ),
        (
            SparkType::Integer(2),
            fixed(&(-7i16).to_le_bytes()),
            -1_618_159_745,
        ),
        (
            SparkType::Integer(4),
            fixed(&(-7i32).to_le_bytes()),
            -1_618_159_745,
        ),
        (
            SparkType::Integer(4),
            fixed(&(-2i32).to_le_bytes()),
            -1_160_545_675,
        ),
        (
            SparkType::Integer(8),
            fixed(&(-7i64).to_le_bytes()),
            222_034_016,
        ),
        (SparkType::Boolean, fixed(&[1]), -559_580_957),
        (
            SparkType::Float(4),
            fixed(&1.5f32.to_le_bytes()),
            -221_251_528,
        ),
        (
            SparkType::Float(4),
            fixed(&(-0.0f32).to_le_bytes()),
            933_211_791,
        ),
        (
            SparkType::Float(4),
            fixed(&f32::NAN.to_le_bytes()),
            -349_261_430,
        ),
        (
            SparkType::Float(8),
            fixed(&(-0.0f64).to_le_bytes()),
            -1_670_924_195,
        ),
        (
            SparkType::Float(8),
            fixed(&(-1.5f64).to_le_bytes()),
            2_099_784_398,
        ),
        (SparkType::Decimal, Value::Decimal(-1234), 180_183_791),
        (SparkType::LongDecimal, Value::Decimal(-1234), -378_694_793),
        (
            SparkType::LongDecimal,
            Value::Decimal(123_456_789_012_345_678_905),
            832_414_797,
        ),
        (SparkType::LongDecimal, Value::Decimal(128), -544_401_882),
        (SparkType::LongDecimal, Value::Decimal(0), -783_713_497),
        (
            SparkType::Binary,
            Value::Bytes(vec![0, 255, 128]),
            -2_052_482_636,
        ),
        (
            SparkType::Struct(vec![SparkType::Integer(4), SparkType::Text]),
            Value::Struct(vec![fixed(&1i32.to_le_bytes()), text("x")]),
            -1_305_545_736,
        ),
    ];
    for (kind, value, expected) in known {
        assert_eq!(
            hash(std::slice::from_ref(&kind), std::slice::from_ref(&value)),
            expected,
            "{kind:?} {value:?}"
        );
    }
    let kinds = [SparkType::Null, SparkType::Text, SparkType::Integer(8)];
    let row = [Value::Null, text("x"), fixed(&3i64.to_le_bytes())];
    assert_eq!(hash(&kinds, &row), 324_519_469);
    assert_eq!(partition_of(-7i32 as u32, 4), 1);
}

#[test]
fn a_prefix_begins_its_keys() {
    let kinds = [SparkType::Text, SparkType::Integer(8)];
    let mut columns = columns(&kinds, &[], false);
    let row = [
        Value::Bytes(b"ada".to_vec()),
        Value::Fixed(7u64.to_le_bytes().to_vec()),
    ];
    let arrays = columns
        .read_entries(1, &entry(&written(&kinds, &row), &[]))
        .unwrap();
    let keys: Vec<_> = kinds
        .iter()
        .zip(&arrays)
        .map(|(kind, array)| key_column(kind, array))
        .collect();
    columns.prefix = Some(1);
    let written_keys = write_keys(&keys, 1, columns.prefix, 1).unwrap();
    let key = written_keys.key(0);
    let first = written(&kinds[..1], &row[..1]);
    let expected = [
        &(first.len() as u32 + 1).to_le_bytes(),
        &[0][..],
        &first,
        &[0],
        &written(&kinds[1..], &row[1..]),
    ];
    assert_eq!(key, expected.concat());
    let (prefix, hash) = write_prefix(&keys[..1]).unwrap();
    assert!(key.starts_with(&prefix));
    assert_eq!(hash, written_keys.hashes[0]);
    assert_eq!(columns.read_entries(1, &entry(key, &[])).unwrap(), arrays);
    for end in 0..key.len() {
        let cut = columns.read_entries(1, &entry(&key[..end], &[]));
        assert_eq!(cut.unwrap_err().kind(), ErrorKind::Corrupt);
    }
}

#[test]
fn a_checksum_is_verified() {
    let kinds = [SparkType::Integer(8)];
    let columns = columns(&[], &kinds, true);
    let row = written(&kinds, &[Value::Fixed(7u64.to_le_bytes().to_vec())]);
    // `KeyValueChecksum.create` of Spark 4.3 for this key and value.
    let key = written(&[SparkType::Text], &[Value::Bytes(b"k1".to_vec())]);
    let kinds = [SparkType::Integer(8), SparkType::Integer(8)];
    let value = [6u64, 0x565].map(|number| Value::Fixed(number.to_le_bytes().to_vec()));
    let known = [
        &[0x7a, 0xec, 0x4f, 0xa4],
        written(&kinds, &value).as_slice(),
    ]
    .concat();
    assert!(columns.read_entries(1, &entry(&key, &known)).is_ok());
    for bytes in [[&[0; 4], row.as_slice()].concat(), vec![1, 2]] {
        let error = columns.read_entries(1, &entry(&key, &bytes)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
    }
}

#[test]
fn an_entry_that_is_no_row_is_read_as_its_bytes() {
    let kinds = [SparkType::parse("w").unwrap()];
    let (key, value) = (b"\x03".as_slice(), b"no row".as_slice());
    let sum = crc32c::crc32c_append(crc32c::crc32c(key), value).to_le_bytes();
    let summed = [&sum, value].concat();
    for (checksums, stored) in [(false, value), (true, &summed)] {
        let columns = columns(&kinds, &kinds, checksums);
        let arrays = columns.read_entries(1, &entry(key, stored)).unwrap();
        let found: Vec<_> = arrays.iter().map(|array| &array.own.values).collect();
        assert_eq!(found, [key, value]);
        let absent = columns.read_values([(key, None)].into_iter()).unwrap();
        assert_eq!(absent[0].own.nulls, 1);
    }
    assert!(SparkType::parse("l(w)").is_err());
}

#[test]
fn errors_name_the_column() {
    let columns = columns(&[], &[SparkType::Text], false);
    let latin = written(&[SparkType::Binary], &[Value::Bytes(vec![0xE9])]);
    let error = columns.read_entries(1, &entry(&[], &latin)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().starts_with("column \"c0\": "), "{error}");
    assert!(columns.read_values([(&[][..], None)].into_iter()).is_ok());
    for code in [
        "", "i3", "f2", "r(", "l()", "l(ii)", "p(s)", "ss", "q", "r(s))",
    ] {
        let error = SparkType::parse(code).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{code}");
    }
}
