package main

import "slices"

// list has the mutants that tests must see. A name says what the program then does
// wrong.
var list = slices.Concat(rootMutants, heapMutants, epochMutants, memoryMutants, blockMutants, orderMutants, sanitizeMutants, featureMutants, rowMutants, gpuMutants)

// stitching are the parts of the battery that are about stitched blocks.
const stitching = "^TestConformance$/^(host|sim_manual)$/^default$/^(stitched.*|random_large_blocks|failing_calls)$"

// pools are tests of the root that are about streams, pools and closing.
const pools = "^Test(Pool|Streams|Place|Pool|Waits|Wait|Record|Event|Close|Own|Sleep|Stranded|Snapshot|Stats|Trim|Release|Ladder|Magazines|Free|Alloc|Lookup|Stitch|ClosingStream)"
