//! Reads protobuf without a schema. The crates that have one are dependencies of the command, and would agree with themselves.

/// The fields of one message, in order.
#[derive(Debug)]
pub(crate) struct Fields<'a>(Vec<(u64, Value<'a>)>);

#[derive(Clone, Copy, Debug)]
pub(crate) enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Fields<'a> {
    pub(crate) fn of(mut message: &'a [u8]) -> Self {
        let mut fields = Vec::new();
        while !message.is_empty() {
            let tag = varint(&mut message);
            let value = match tag & 7 {
                0 => Value::Number(varint(&mut message)),
                1 => Value::Number(u64::from_le_bytes(
                    take(&mut message, 8).try_into().unwrap(),
                )),
                2 => {
                    let length = varint(&mut message);
                    Value::Bytes(take(&mut message, usize::try_from(length).unwrap()))
                }
                5 => Value::Number(
                    u32::from_le_bytes(take(&mut message, 4).try_into().unwrap()).into(),
                ),
                other => panic!("wire type {other}"),
            };
            fields.push((tag >> 3, value));
        }
        Self(fields)
    }

    pub(crate) fn first(&self) -> Option<(u64, Value<'a>)> {
        self.0.first().copied()
    }

    /// The messages in a field.
    pub(crate) fn messages(&self, field: u64) -> impl Iterator<Item = Fields<'a>> {
        self.values(field).map(move |value| match value {
            Value::Bytes(bytes) => Fields::of(bytes),
            Value::Number(number) => panic!("field {field} is {number}"),
        })
    }

    /// The bytes of a field; none where it is absent.
    pub(crate) fn bytes(&self, field: u64) -> &'a [u8] {
        match self.values(field).last() {
            Some(Value::Bytes(bytes)) => bytes,
            Some(Value::Number(number)) => panic!("field {field} is {number}"),
            None => &[],
        }
    }

    /// The number in a field; 0 where it is absent.
    pub(crate) fn number(&self, field: u64) -> u64 {
        match self.values(field).last() {
            Some(Value::Number(number)) => number,
            Some(Value::Bytes(_)) => panic!("field {field} is no number"),
            None => 0,
        }
    }

    fn values(&self, field: u64) -> impl Iterator<Item = Value<'a>> {
        let values = self.0.iter().filter(move |(number, _)| *number == field);
        values.map(|(_, value)| *value)
    }
}

fn take<'a>(from: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, rest) = from.split_at(count);
    *from = rest;
    taken
}

fn varint(from: &mut &[u8]) -> u64 {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(from, 1)[0];
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return number;
        }
    }
    panic!("a number of more than ten bytes");
}
