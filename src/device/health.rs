//! What went wrong outside a call that could return it: wgpu reports such errors to callbacks, and after the loss of
//! a device every call silently succeeds.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::DeviceError;

/// Errors that wait to be picked up.
#[derive(Debug, Default)]
pub(super) struct Health {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Why the device was lost. Stays for good.
    lost: Option<String>,
    /// The first error since the last look; later ones are mostly its consequences.
    error: Option<DeviceError>,
}

impl Health {
    /// Installs the callbacks.
    pub(super) fn watch(device: &wgpu::Device) -> Arc<Self> {
        let health = Arc::new(Health::default());
        let errors = health.clone();
        device.on_uncaptured_error(Arc::new(move |error| {
            log::error!("wgpu: {error}");
            errors.lock().error.get_or_insert(from_wgpu("device work", 0, &error));
        }));
        let losses = health.clone();
        device.set_device_lost_callback(move |reason, message| {
            if reason != wgpu::DeviceLostReason::Destroyed {
                losses.set_lost(message);
            }
        });
        health
    }

    pub(super) fn set_lost(&self, reason: String) {
        self.lock().lost.get_or_insert(reason);
    }

    /// The loss, or else the first error since the last look.
    pub(super) fn check(&self) -> Result<(), DeviceError> {
        let mut state = self.lock();
        if let Some(reason) = &state.lost {
            return Err(DeviceError::Lost { reason: reason.clone() });
        }
        state.error.take().map_or(Ok(()), Err)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn from_wgpu(label: &str, size_bytes: u64, error: &wgpu::Error) -> DeviceError {
    match error {
        wgpu::Error::OutOfMemory { .. } => DeviceError::OutOfMemory { label: label.to_owned(), size_bytes },
        wgpu::Error::Validation { description, .. } | wgpu::Error::Internal { description, .. } => {
            DeviceError::Validation { label: label.to_owned(), reason: description.clone() }
        }
    }
}
