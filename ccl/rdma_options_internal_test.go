package ccl

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/fault"
)

func TestOptionsOfRDMA(t *testing.T) {
	o, err := ParseOptions("GOCCL_IB_HCA==mlx5_0:1,mlx5_1\nGOCCL_IB_GID_INDEX=3\nGOCCL_IB_TIMEOUT=18\n" +
		"GOCCL_IB_RETRY_CNT=6\nGOCCL_IB_TC=106\nGOCCL_IB_SL=3\n")
	require.NoError(t, err)
	require.Equal(t, Options{NodeOptions: NodeOptions{IBHCA: "=mlx5_0:1,mlx5_1", IBGIDIndex: new(3), IBTimeout: 18,
		IBRetryCnt: 6, IBTC: 106, IBSL: 3}}, o)
	for _, text := range []string{"GOCCL_IB_GID_INDEX=-1", "GOCCL_IB_GID_INDEX=", "GOCCL_IB_TIMEOUT=", "GOCCL_IB_SL=0",
		"GOCCL_IB_HCA=^mlx5_3"} {
		_, err := ParseOptions(text)
		require.NoError(t, err, text)
	}
	for text, why := range map[string]string{
		"GOCCL_IB_HCA=mlx5_0:x":     "is not a number from 1 to 255",
		"GOCCL_IB_GID_INDEX=-2":     "or an index from 0 to 255",
		"GOCCL_IB_GID_INDEX=256":    "or an index from 0 to 255",
		"GOCCL_IB_TIMEOUT=13":       "from 14 to 22",
		"GOCCL_IB_TIMEOUT=0":        "from 14 to 22",
		"GOCCL_IB_RETRY_CNT=7":      "from 1 to 6", // on some adapters that means for ever
		"GOCCL_IB_RETRY_CNT=0":      "from 1 to 6",
		"GOCCL_IB_TC=256":           "from 0 to 255",
		"GOCCL_IB_SL=16":            "from 0 to 15",
		"GOCCL_IB_SL=high":          "from 0 to 15",
		"GOCCL_IB_RETRY_CNT=\u0661": "from 1 to 6",
	} {
		_, err := ParseOptions(text)
		require.ErrorIs(t, err, fault.Invalid, text)
		require.ErrorContains(t, err, why, text)
	}
}
