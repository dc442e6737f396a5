package training

import "github.com/cupool/cupool"

// PoolOn makes a pool as the flags and the environment (CUPOOL_ALLOC_CONF) say.
func (o *Options) PoolOn(device cupool.Driver) (*cupool.Pool, error) {
	cfg, _, err := cupool.ConfigFromEnv(o.Observe.Config(cupool.Config{Driver: device}))
	if err != nil {
		return nil, err
	}
	return cupool.New(cfg)
}
