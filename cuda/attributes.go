package cuda

import (
	"github.com/cupool/cupool/internal/cudadrv"
)

// attribute is a CUdevice_attribute.
type attribute int

const (
	attrMultiprocessors   attribute = 16
	attrUnifiedAddressing attribute = 41
	attrMajor             attribute = 75 // of the compute capability
	attrMinor             attribute = 76
	attrManaged           attribute = 83
	attrPageableAccess    attribute = 88
	attrConcurrentManaged attribute = 89
	attrHostPageTables    attribute = 100 // PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES
	attrVMM               attribute = 102 // VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
	attrShareFD           attribute = 103 // HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
	attrRDMA              attribute = 110 // GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED
	attrNativePools       attribute = 115 // MEMORY_POOLS_SUPPORTED
	attrPoolHandles       attribute = 119 // MEMPOOL_SUPPORTED_HANDLE_TYPES
	attrIPCEvents         attribute = 125 // IPC_EVENT_SUPPORTED
	attrShareFabric       attribute = 128 // HANDLE_TYPE_FABRIC_SUPPORTED
)

// attribute returns 0 for an attribute that the driver does not know.
func (c *context) attribute(a attribute) int {
	v, r := cudadrv.DeviceAttribute(c.device, int(a))
	if r != cudadrv.Success {
		return 0
	}
	return v
}
