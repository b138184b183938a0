// Many specs over one stream.
#pragma once

#include <vector>

#include "client/commands/context.h"
#include "client/commands/submit_options.h"
#include "client/spec_loader/spec_file.h"

namespace trainyard::commands {

// Submits what is right and tells what is not, each with its file and line. The names of the jobs
// go to stdout in the order of the documents. 2 where any was refused.
Result SubmitMany(const Context& context, const SubmitFlags& flags,
                  const std::vector<spec_loader::SpecText>& texts);

}  // namespace trainyard::commands
