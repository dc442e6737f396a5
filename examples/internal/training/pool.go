package training

import "github.com/cupool/cupool"

// PoolOn makes a pool as the environment says (CUPOOL_ALLOC_CONF).
func PoolOn(device cupool.Driver) (*cupool.Caching, error) {
	cfg, _, err := cupool.ConfigFromEnv(cupool.Config{Driver: device})
	if err != nil {
		return nil, err
	}
	return cupool.New(cfg)
}
