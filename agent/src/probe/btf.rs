//! The running kernel's types, read from its BTF: where a member lies, what number an enumerator has.
//!
//! Takes the bytes of /sys/kernel/btf/vmlinux (format: Documentation/bpf/btf.rst) and answers from them. Knows only what
//! the probe asks for, never guesses: a type or member that is not there is an error with its name.

use std::{collections::HashMap, fs, io, path::PathBuf};

/// Where every kernel with CONFIG_DEBUG_INFO_BTF shows its types.
pub const VMLINUX: &str = "/sys/kernel/btf/vmlinux";
/// No kernel's BTF is near this size (a distribution's is 5-10 MB).
const SIZE_LIMIT: usize = 256 << 20;
/// Anonymous structs and unions, arrays and typedefs within each other.
const DEPTH_LIMIT: u32 = 32;

const MAGIC: u16 = 0xeb9f;
const HEADER: usize = 24;

const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const TYPEDEF: u32 = 8;
const TYPE_TAG: u32 = 18;
const ENUM64: u32 = 19;

#[derive(Debug, thiserror::Error)]
pub enum BtfError {
    #[error("{}: the kernel was built without BTF, or it can't be read", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("not BTF: {0}")]
    Malformed(&'static str),
    #[error("the kernel has no {0}")]
    Missing(String),
}

/// The types of one kernel.
#[derive(Debug)]
pub struct Types {
    data: Vec<u8>,
    strings: usize,
    /// Where each type starts in `data`; type 0 is void.
    types: Vec<usize>,
    /// Structs, unions and enums with members, by name.
    named: HashMap<String, u32>,
}

/// The fixed part of a type.
#[derive(Debug, Clone, Copy)]
struct Type {
    kind: u32,
    count: u32,
    flag: bool,
    /// Size in bytes, or the type that it stands for.
    target: u32,
    /// Where what follows the fixed part starts.
    body: usize,
}

impl Types {
    /// The running kernel's.
    pub fn of_kernel() -> Result<Self, BtfError> {
        let data = fs::read(VMLINUX).map_err(|source| BtfError::Read { path: VMLINUX.into(), source })?;
        Self::parse(data)
    }

    pub fn parse(data: Vec<u8>) -> Result<Self, BtfError> {
        let malformed = BtfError::Malformed;
        if data.len() < HEADER || data.len() > SIZE_LIMIT {
            return Err(malformed("its size is impossible"));
        }
        if u16::from_ne_bytes([data[0], data[1]]) != MAGIC {
            return Err(malformed("the magic number is another, or of another byte order"));
        }
        let field = |at: usize| number(&data, at).ok_or(malformed("the header is cut"));
        let header = field(4)? as usize;
        let section = |offset: usize, len: usize| {
            let start = header.checked_add(offset)?;
            let end = start.checked_add(len)?;
            (end <= data.len()).then_some((start, end))
        };
        let (start, end) = section(field(8)? as usize, field(12)? as usize)
            .ok_or(malformed("the types lie outside the data"))?;
        let (strings, _) = section(field(16)? as usize, field(20)? as usize)
            .ok_or(malformed("the strings lie outside the data"))?;
        let mut this = Self { data, strings, types: vec![0], named: HashMap::new() };
        let mut at = start;
        while at < end {
            let id = this.types.len() as u32;
            this.types.push(at);
            let found = this.read(id).ok_or(malformed("a type is cut"))?;
            at = found.body + found.extra().ok_or(malformed("a type of an unknown kind"))?;
            if at > end {
                return Err(malformed("a type is cut"));
            }
            if matches!(found.kind, STRUCT | UNION | ENUM | ENUM64)
                && found.count > 0
                && let Some(name) = this.name_at(this.types[id as usize]).filter(|name| !name.is_empty())
            {
                let name = name.to_owned();
                this.named.entry(name).or_insert(id);
            }
        }
        Ok(this)
    }

    /// The byte offset of a member, by a path such as `task_struct.thread_info.status` or `pt_regs.regs[1]`; several
    /// paths may stand in one text, separated by `|`: the first that exists counts.
    pub fn offset(&self, paths: &str) -> Result<u32, BtfError> {
        paths
            .split('|')
            .find_map(|path| self.path(path))
            .ok_or_else(|| BtfError::Missing(paths.replace('|', " or ")))
    }

    /// The number of an enumerator.
    pub fn enumerator(&self, of: &str, name: &str) -> Result<u32, BtfError> {
        self.named
            .get(of)
            .and_then(|&id| self.read(id))
            .and_then(|found| {
                let size = if found.kind == ENUM { 8 } else { 12 };
                (0..found.count as usize)
                    .map(|n| found.body + n * size)
                    .find(|&at| self.name_at(at) == Some(name))
                    .and_then(|at| number(&self.data, at + 4))
            })
            .ok_or_else(|| BtfError::Missing(format!("{of}.{name}")))
    }

    fn path(&self, path: &str) -> Option<u32> {
        let mut parts = path.split('.');
        let mut id = *self.named.get(parts.next()?)?;
        let mut offset = 0u32;
        for part in parts {
            let (name, index) = match part.strip_suffix(']').and_then(|part| part.split_once('[')) {
                Some((name, index)) => (name, Some(index.parse::<u32>().ok()?)),
                None => (part, None),
            };
            let (at, of) = self.member(id, name, DEPTH_LIMIT)?;
            offset = offset.checked_add(at)?;
            id = of;
            if let Some(index) = index {
                let array = self.read(self.resolve(id)?)?;
                if array.kind != ARRAY || index >= number(&self.data, array.body + 8)? {
                    return None;
                }
                id = number(&self.data, array.body)?;
                let element = self.size(id)?;
                offset = offset.checked_add(element.checked_mul(index)?)?;
            }
        }
        Some(offset)
    }

    /// A member's offset and type; anonymous structs and unions are looked through.
    fn member(&self, id: u32, name: &str, depth: u32) -> Option<(u32, u32)> {
        let found = self.read(self.resolve(id)?)?;
        if depth == 0 || !matches!(found.kind, STRUCT | UNION) {
            return None;
        }
        for n in 0..found.count as usize {
            let at = found.body + n * 12;
            let (own, of, bits) =
                (self.name_at(at)?, number(&self.data, at + 4)?, number(&self.data, at + 8)?);
            let bits = if found.flag { bits & 0x00ff_ffff } else { bits };
            if own == name {
                // A bit field has no address.
                return (bits % 8 == 0).then_some((bits / 8, of));
            }
            if own.is_empty()
                && let Some((inner, of)) = self.member(of, name, depth - 1)
            {
                return Some(((bits / 8).checked_add(inner)?, of));
            }
        }
        None
    }

    /// What a typedef or a qualifier stands for.
    fn resolve(&self, mut id: u32) -> Option<u32> {
        for _ in 0..DEPTH_LIMIT {
            let found = self.read(id)?;
            if !(TYPEDEF..=11).contains(&found.kind) && found.kind != TYPE_TAG {
                return Some(id);
            }
            id = found.target;
        }
        None
    }

    /// Size in bytes of a type that has one of its own: number, struct, union, enum. A pointer has 8.
    fn size(&self, id: u32) -> Option<u32> {
        let found = self.read(self.resolve(id)?)?;
        match found.kind {
            1 | STRUCT | UNION | ENUM | ENUM64 => Some(found.target),
            2 => Some(8),
            _ => None,
        }
    }

    fn read(&self, id: u32) -> Option<Type> {
        let at = *self.types.get(id as usize).filter(|_| id != 0)?;
        let info = number(&self.data, at + 4)?;
        Some(Type {
            kind: (info >> 24) & 0x1f,
            count: info & 0xffff,
            flag: info >> 31 == 1,
            target: number(&self.data, at + 8)?,
            body: at + 12,
        })
    }

    /// The name whose offset stands at `at`.
    fn name_at(&self, at: usize) -> Option<&str> {
        let start = self.strings.checked_add(number(&self.data, at)? as usize)?;
        let rest = self.data.get(start..)?;
        let end = rest.iter().position(|&byte| byte == 0)?;
        std::str::from_utf8(&rest[..end]).ok()
    }
}

impl Type {
    /// Bytes after the fixed part.
    fn extra(self) -> Option<usize> {
        let each = match self.kind {
            2 | 7..=12 | 16 | TYPE_TAG => return Some(0),
            1 | 14 | 17 => return Some(4),
            ARRAY => return Some(12),
            STRUCT | UNION | 15 | ENUM64 => 12,
            ENUM | 13 => 8,
            _ => return None,
        };
        Some(each * self.count as usize)
    }
}

fn number(data: &[u8], at: usize) -> Option<u32> {
    data.get(at..at.checked_add(4)?)?.try_into().ok().map(u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_running_kernels_members_are_found() {
        let types = Types::of_kernel().unwrap();
        assert_eq!(types.offset("fdtable.max_fds").unwrap(), 0);
        assert_eq!(types.offset("fdtable.fd").unwrap(), 8);
        assert_eq!(types.offset("pt_regs.ip|pt_regs.pc").unwrap() % 8, 0);
        // Through an anonymous union (sk_buff) and a nested struct.
        assert!(types.offset("sock.__sk_common.skc_family").unwrap() > 0);
        assert_eq!(
            types.offset("file.f_path.dentry").unwrap(),
            types.offset("file.f_path").unwrap() + types.offset("path.dentry").unwrap()
        );
        assert_eq!(types.offset("no_such_struct.x|fdtable.fd").unwrap(), 8);
        let comm = types.offset("task_struct.comm").unwrap();
        assert_eq!(types.offset("task_struct.comm[3]").unwrap(), comm + 3);
    }

    #[test]
    fn what_is_not_there_is_an_error_with_its_name() {
        let types = Types::of_kernel().unwrap();
        for path in
            ["task_struct.no_such_member", "no_such_struct.x", "task_struct.comm[16]", "task_struct.tgid.x"]
        {
            assert_eq!(types.offset(path).unwrap_err().to_string(), format!("the kernel has no {path}"));
        }
        assert!(types.enumerator("cgroup_subsys_id", "no_such_cgrp_id").is_err());
        assert!(types.enumerator("cgroup_subsys_id", "CGROUP_SUBSYS_COUNT").unwrap() > 0);
    }

    fn header(types: &[u8], strings: &[u8]) -> Vec<u8> {
        let mut data = Vec::from(MAGIC.to_ne_bytes());
        data.extend([1, 0]);
        for value in [24, 0, types.len() as u32, types.len() as u32, strings.len() as u32] {
            data.extend(value.to_ne_bytes());
        }
        data.extend(types);
        data.extend(strings);
        data
    }

    proptest! {
        #[test]
        fn any_types_are_read_or_refused(
            types in proptest::collection::vec(prop_oneof![0u32..20, any::<u32>(), (0u32..20).prop_map(|kind| kind << 24 | 2)], 0..60),
            strings in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let types: Vec<u8> = types.into_iter().flat_map(u32::to_ne_bytes).collect();
            if let Ok(types) = Types::parse(header(&types, &strings)) {
                let names: Vec<String> = types.named.keys().cloned().collect();
                for name in names {
                    let _ = types.offset(&format!("{name}.a[1].b"));
                    let _ = types.enumerator(&name, "a");
                }
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Types::parse(bytes);
        }
    }
}
