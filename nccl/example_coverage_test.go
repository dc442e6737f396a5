package nccl_test

import (
	"testing"

	"github.com/cupool/cupool/internal/exampletest"
)

func TestEveryIdentifierIsInAnExample(t *testing.T) { exampletest.Complete(t) }
