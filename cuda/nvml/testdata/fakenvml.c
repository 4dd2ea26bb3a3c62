// A libnvidia-ml with three GPUs, for the tests of package nvml: two are linked by four NVLinks, and
// one has a link to a switch.
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct { char legacy[16]; unsigned domain, bus, device, ids[2]; char busId[32]; } pci;
static int inits, bad;

int fake_inits(void) { return inits; }
void fake_fail(int code) { bad = code; }
int nvmlInit_v2(void) { if (bad) return bad; inits++; return 0; }
int nvmlShutdown(void) { inits--; return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device) {
	unsigned domain, number, slot, function;
	if (!inits || sscanf(bus, "%x:%x:%x.%x", &domain, &number, &slot, &function) != 4 || number < 1 || number > 3) return 6;
	*device = (void *)(uintptr_t)(0x700 + number);
	return 0;
}
int nvmlDeviceGetNvLinkState(void *device, unsigned link, unsigned *active) {
	uintptr_t number = (uintptr_t)device - 0x700;
	if (number == 3 && link > 0) return 3; // NVML_ERROR_NOT_SUPPORTED
	*active = link < 5;
	return link < 18 ? 0 : 2;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned link, pci *at) {
	uintptr_t number = (uintptr_t)device - 0x700;
	if (link == 4) return 999;
	memset(at, 0xee, sizeof *at);
	snprintf(at->busId, sizeof at->busId, "00000000:%02X:00.0", number == 3 ? 0xAB : (unsigned)(3 - number));
	return 0;
}
int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) {
	uintptr_t number = (uintptr_t)device - 0x700;
	*major = 9;
	*minor = 0;
	return number == 3 ? 3 : 0;
}
int nvmlDeviceGetTopologyCommonAncestor(void *a, void *b, int *level) {
	if (a == b) return 2;
	*level = ((uintptr_t)a + (uintptr_t)b) % 2 ? 10 : 50;
	return 0;
}
