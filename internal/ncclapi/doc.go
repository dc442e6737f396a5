// Package ncclapi is the module's own binding of the part of NCCL that package
// nccl needs. The library is opened when a program asks for it, and NCCL's
// headers are not needed.
//
// Communicators are made non-blocking: a call that has to wait for other ranks
// returns InProgress, and Comm.State says when it is over. Until then no other
// call than Abort may be made.
package ncclapi
