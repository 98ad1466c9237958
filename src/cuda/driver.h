// The few calls of the CUDA driver that the runtime has no name for, looked up when they are first needed: programs
// start where there is no driver.
#pragma once

#include <cuda.h>

namespace ferry::cuda {

// What Ferry uses of virtual memory management, whose handles other processes can open.
struct Driver {
  decltype(&cuGetErrorString) get_error_string;
  decltype(&cuDeviceGetAttribute) device_get_attribute;
  decltype(&cuMemGetAllocationGranularity) granularity;
  decltype(&cuMemCreate) create;
  decltype(&cuMemRelease) release;
  decltype(&cuMemAddressReserve) address_reserve;
  decltype(&cuMemAddressFree) address_free;
  decltype(&cuMemMap) map;
  decltype(&cuMemUnmap) unmap;
  decltype(&cuMemSetAccess) set_access;
  decltype(&cuMemExportToShareableHandle) export_handle;
  decltype(&cuMemImportFromShareableHandle) import_handle;
};

// Throws Error(unsupported) where there is no driver or it is too old.
const Driver& driver();

// Throws Error(system) with the call and the driver's words where `status` is an error.
void driver_check(CUresult status, const char* call);

}  // namespace ferry::cuda
