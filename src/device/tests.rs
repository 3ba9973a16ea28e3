use super::staging::Range;
use super::testing::device_or_skip;
use super::*;
use crate::shader::{Access, Kernel, StorageType, Variant};

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251) as u8).collect()
}

#[test]
fn data_of_any_size_survives_the_round_trip_through_small_slots() {
    let Some(device) = device_or_skip() else { return };
    let baseline = device.ledger().current_bytes();
    {
        let mut upload = UploadRing::new(&device, 2, 1024).expect("fits");
        let mut readback = Readback::new(&device, 768).expect("fits");
        let sizes = [1, 4, 6, 255, 1024, 1025, 5000, 16];
        let buffers: Vec<_> =
            sizes.iter().map(|&size| device.create_storage("target", 256 + size as u64).expect("fits")).collect();
        for (buffer, &size) in buffers.iter().zip(&sizes) {
            upload.write(&device, buffer, 256, &bytes(size)).expect("uploads");
        }
        upload.flush(&device).expect("flushes");
        let ranges: Vec<_> = buffers
            .iter()
            .zip(&sizes)
            .map(|(buffer, &size)| Range { buffer, offset_bytes: 256, size_bytes: size as u64 })
            .collect();
        let read = readback.read(&device, &ranges).expect("reads");
        for (read, &size) in read.iter().zip(&sizes) {
            assert_eq!(read, &bytes(size), "{size} bytes");
        }
        assert!(readback.read(&device, &[]).expect("nothing to read").is_empty());
        let storage: u64 = buffers.iter().map(Buffer::size_bytes).sum();
        assert_eq!(device.ledger().current_bytes(), baseline + 2 * 1024 + 768 + storage);
    }
    assert_eq!(device.ledger().current_bytes(), baseline);
}

#[test]
fn out_of_memory_is_an_error_and_leaves_the_device_usable() {
    let Some(device) = device_or_skip() else { return };
    device.set_fake_limit_bytes(Some(device.ledger().current_bytes() + 4096));
    let error = device.create_storage("too large", 8192).expect_err("beyond the limit");
    assert_eq!(error, DeviceError::OutOfMemory { label: "too large".to_owned(), size_bytes: 8192 });
    let kept = device.create_storage("fits", 4096).expect("within the limit");
    assert!(device.create_storage("one more", 1).is_err());
    drop(kept);
    assert!(device.create_storage("after release", 4096).is_ok());
}

/// Needs a process that may not have much memory: run it alone under `ulimit -v 4000000`.
#[test]
#[ignore = "would take 16 GiB of address space where no limit is set"]
fn real_out_of_memory_is_an_error_and_leaves_the_device_usable() {
    let Some(device) = device_or_skip() else { return };
    let mut held = Vec::new();
    let error = (0..64).find_map(|_| match device.create_storage("256 MiB", 256 << 20) {
        Ok(buffer) => {
            held.push(buffer);
            None
        }
        Err(error) => Some(error),
    });
    println!("{} buffers fit", held.len());
    assert!(matches!(error, Some(DeviceError::OutOfMemory { .. })), "{error:?}");
    assert_eq!(device.ledger().current_bytes(), device.baseline_bytes() + held.len() as u64 * (256 << 20));
    held.clear();
    let mut upload = UploadRing::new(&device, 1, 1024).expect("there is room again");
    let buffer = device.create_storage("after", 256 << 20).expect("there is room again");
    upload.write(&device, &buffer, 0, &bytes(4096)).expect("the device works");
    upload.flush(&device).expect("the device works");
    device.synchronize().expect("the device works");
}

#[test]
fn a_buffer_beyond_the_limits_is_an_error() {
    let Some(device) = device_or_skip() else { return };
    let before = device.ledger().current_bytes();
    let error = device.create_storage("absurd", device.info().max_buffer_bytes.saturating_add(256) & !255);
    assert!(matches!(error, Err(DeviceError::Validation { .. } | DeviceError::OutOfMemory { .. })), "{error:?}");
    assert_eq!(device.ledger().current_bytes(), before);
    assert_eq!(device.check(), Ok(()));
}

#[test]
fn pipelines_are_made_once_and_refused_where_unsupported() {
    let Some(device) = device_or_skip() else { return };
    let copy = Kernel::new("copy", "forward");
    let variant = Variant {
        halves: Vec::new(),
        storage: StorageType::F32,
        access: Access::Read,
        in_place: None,
        family: Family::Workgroup,
        consts: Vec::new(),
        epilogue: Vec::new(),
    };
    let first = device.pipeline(copy, &variant).expect("compiles");
    assert!(Arc::ptr_eq(&first, &device.pipeline(copy, &variant).expect("cached")));
    assert_eq!(first.reflection.bindings.len(), 2);
    let odd = Variant { family: Family::Subgroup { size: 5 }, ..variant.clone() };
    assert!(matches!(device.pipeline(copy, &odd), Err(DeviceError::Unsupported { .. })));
    let missing = device.pipeline(Kernel::new("copy", "nothing"), &variant);
    assert!(matches!(missing, Err(DeviceError::Shader(_))));
}

#[test]
fn a_lost_device_is_reported_by_every_call() {
    let Some(device) = device_or_skip() else { return };
    let mut readback = Readback::new(&device, 256).expect("fits");
    let buffer = device.create_storage("kept", 256).expect("fits");
    device.simulate_loss("test");
    let lost = Err(DeviceError::Lost { reason: "test".to_owned() });
    assert_eq!(device.check(), lost);
    assert_eq!(device.synchronize(), lost);
    assert!(matches!(device.create_storage("more", 256), Err(DeviceError::Lost { .. })));
    let read = readback.read(&device, &[Range { buffer: &buffer, offset_bytes: 0, size_bytes: 4 }]);
    assert!(matches!(read, Err(DeviceError::Lost { .. })));
}

#[test]
fn errors_outside_a_scope_are_kept_for_the_next_check() {
    let Some(device) = device_or_skip() else { return };
    let buffer = device.create_storage("small", 256).expect("fits");
    let other = device.create_storage("other", 256).expect("fits");
    let mut encoder = device.encoder();
    encoder.copy_buffer_to_buffer(buffer.raw(), 128, other.raw(), 0, 256);
    assert!(matches!(device.submit(encoder), Err(DeviceError::Validation { .. })));
    assert_eq!(device.check(), Ok(()));
}

#[test]
fn the_list_names_the_device_that_opens() {
    let Some(device) = device_or_skip() else { return };
    let listed = list().expect("lists");
    assert_eq!(&listed[device.info().index], device.info());
    assert!(device.supports(device.target().family));
    let index = device.info().index.to_string();
    assert_eq!(Device::open(Some(&index)).expect("opens by index").info(), device.info());
    assert!(matches!(Device::open(Some("no such device")), Err(DeviceError::Unknown { .. })));
    println!("{listed:#?}\nbaseline {} bytes", device.baseline_bytes());
}
