package main

// call is an entry point of libcuda.
type call struct {
	name    string // without the _v2 of the library's symbols
	version int    // of CUDA, in which it got the form that arguments describe
	need    need
	// arguments are those of a function in Go: handles are uintptr, CUdevice and enumerations are
	// int32, sizes are uintptr, and whatever C writes to is a pointer.
	arguments string
}

type need bool

const (
	always    need = true
	sometimes need = false // an error where it is called, if the driver does not have it
)

// table has the versions of NVIDIA's cudaTypedefs.h, and the arguments of cuda.h.
var table = []call{
	{"cuInit", 2000, always, "flags uint32"},
	{"cuGetErrorName", 6000, always, "code int32, name **byte"},

	{"cuDeviceGetCount", 2000, always, "count *int32"},
	{"cuDeviceGet", 2000, always, "device *int32, index int32"},
	{"cuDeviceGetName", 2000, always, "name *byte, bytes, device int32"},
	{"cuDeviceGetUuid", 11040, always, "uuid *[16]byte, device int32"},
	{"cuDeviceGetPCIBusId", 4010, always, "bus *byte, bytes, device int32"},
	{"cuDeviceTotalMem", 3020, always, "bytes *uintptr, device int32"},
	{"cuDeviceGetAttribute", 2000, always, "value *int32, attribute, device int32"},
	{"cuDeviceCanAccessPeer", 4000, sometimes, "can *int32, device, peer int32"},

	{"cuDevicePrimaryCtxRetain", 7000, always, "context *uintptr, device int32"},
	{"cuDevicePrimaryCtxRelease", 11000, always, "device int32"},
	{"cuCtxPushCurrent", 4000, always, "context uintptr"},
	{"cuCtxPopCurrent", 4000, always, "context *uintptr"},
	{"cuCtxGetStreamPriorityRange", 5050, always, "least, greatest *int32"},
	{"cuThreadExchangeStreamCaptureMode", 10010, always, "mode *int32"},

	{"cuMemcpyAsync", 4000, always, "to, from cuda.Ptr, bytes, stream uintptr"},
	{"cuStreamCreateWithPriority", 5050, always, "stream *uintptr, flags uint32, priority int32"},
	{"cuStreamDestroy", 4000, always, "stream uintptr"},
	{"cuStreamQuery", 2000, always, "stream uintptr"},
	{"cuStreamSynchronize", 2000, always, "stream uintptr"},
	{"cuStreamGetCaptureInfo", 11030, always,
		"stream uintptr, status *int32, id *uint64, graph *uintptr, nodes, count uintptr"},
	{"cuStreamWaitEvent", 3020, always, "stream, event uintptr, flags uint32"},
	{"cuStreamBatchMemOp", 11070, sometimes, "stream uintptr, count uint32, ops *memOp, flags uint32"},

	{"cuModuleLoadData", 2000, always, "module *uintptr, code *byte"},
	{"cuModuleUnload", 2000, always, "module uintptr"},
	{"cuModuleGetFunction", 2000, always, "function *uintptr, module uintptr, name *byte"},
	{"cuFuncGetAttribute", 2020, always, "value *int32, attribute int32, function uintptr"},
	{"cuLaunchKernelEx", 11060, sometimes, "config *launchConfig, function uintptr, parameters **byte, extra uintptr"},

	{"cuUserObjectCreate", 11030, sometimes, "object *uintptr, what, destroy uintptr, count, flags uint32"},
	{"cuUserObjectRelease", 11030, sometimes, "object uintptr, count uint32"},
	{"cuGraphRetainUserObject", 11030, sometimes, "graph, object uintptr, count, flags uint32"},

	{"cuEventCreate", 2000, always, "event *uintptr, flags uint32"},
	{"cuEventRecord", 2000, always, "event, stream uintptr"},
	{"cuEventQuery", 2000, always, "event uintptr"},
	{"cuEventDestroy", 4000, always, "event uintptr"},

	{"cuMemHostRegister", 6050, sometimes, "host *byte, bytes uintptr, flags uint32"},
	{"cuMemHostGetDevicePointer", 3020, sometimes, "p *cuda.Ptr, host *byte, flags uint32"},
	{"cuMemHostUnregister", 4000, sometimes, "host *byte"},

	{"cuPointerGetAttribute", 4000, sometimes, "value *uint64, attribute int32, p cuda.Ptr"},
	{"cuMemGetAddressRange", 3020, sometimes, "start *cuda.Ptr, bytes *uintptr, p cuda.Ptr"},
	{"cuMemGetHandleForAddressRange", 11070, sometimes,
		"descriptor *int32, p cuda.Ptr, bytes uintptr, kind int32, flags uint64"},
	{"cuMemGetAllocationGranularity", 10020, sometimes, "bytes *uintptr, properties *allocation, option int32"},
	{"cuMemCreate", 10020, sometimes, "handle *uint64, bytes uintptr, properties *allocation, flags uint64"},
	{"cuMemRelease", 10020, sometimes, "handle uint64"},
	{"cuMemAddressReserve", 10020, sometimes, "p *cuda.Ptr, bytes, alignment uintptr, wish cuda.Ptr, flags uint64"},
	{"cuMemAddressFree", 10020, sometimes, "p cuda.Ptr, bytes uintptr"},
	{"cuMemMap", 10020, sometimes, "p cuda.Ptr, bytes, offset uintptr, handle, flags uint64"},
	{"cuMemUnmap", 10020, sometimes, "p cuda.Ptr, bytes uintptr"},
	{"cuMemSetAccess", 10020, sometimes, "p cuda.Ptr, bytes uintptr, access *access, count uintptr"},
	{"cuMemExportToShareableHandle", 10020, sometimes, "descriptor *int32, handle uint64, kind int32, flags uint64"},
	{"cuMemImportFromShareableHandle", 10020, sometimes, "handle *uint64, descriptor uintptr, kind int32"},
	{"cuMemGetAllocationPropertiesFromHandle", 10020, sometimes, "properties *allocation, handle uint64"},
}
