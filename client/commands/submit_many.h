// Submits many specs over one stream.
#pragma once

#include <vector>

#include "client/commands/context.h"
#include "client/commands/submit_options.h"
#include "client/spec_loader/spec_file.h"

namespace trainyard::commands {

// Submits the specs that are right, and reports the others with their files and lines. The names of
// the jobs go to stdout in the order of the documents. The exit code is 2 if any document was
// refused.
Result SubmitMany(const Context& context, const SubmitFlags& flags,
                  const std::vector<spec_loader::SpecText>& texts);

}  // namespace trainyard::commands
