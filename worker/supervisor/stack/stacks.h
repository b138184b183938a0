// Reads the stacks of another process, with libdw: it stops the threads with ptrace, one after the
// other, reads their frames by the unwind tables of the program, and lets them continue. No debug
// information is needed, only symbols.
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <string>

namespace trainyard::supervisor {

// Prints the stacks, the main thread first. Each line is flushed, so that a reader that stops
// waiting has the lines up to then:
//   thread 4711 (trainyard-trai)
//     #0 poll (libc.so.6)
//     #1 trainyard::trainer::TrainLoop::Step() (trainyard-trainer)
// Returns false if nothing could be read, with the reason in `error`.
bool PrintStacks(pid_t pid, std::FILE* out, std::string& error);

}  // namespace trainyard::supervisor
