package ipc_test

import (
	"testing"

	"github.com/cupool/cupool/internal/exampletest"
)

func TestEveryPublicIdentifierHasExample(t *testing.T) { exampletest.Complete(t) }
