// Calls of the CUDA driver that the runtime does not have. They are looked up at first use, so that programs start on
// machines without a driver.
#pragma once

#include <cuda.h>

#include <string>

#include "ferry/error.h"

namespace ferry::cuda {

// Virtual memory management: other processes can open its handles.
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

// Error(system) with the call and the driver's words.
class DriverError : public Error {
 public:
  DriverError(CUresult status, const std::string& message) : Error(ErrorKind::system, message), status_(status) {}
  bool lacks_memory() const { return status_ == CUDA_ERROR_OUT_OF_MEMORY; }

 private:
  CUresult status_;
};

// Throws DriverError where `status` is an error.
void driver_check(CUresult status, const char* call);

}  // namespace ferry::cuda
