// version prints the versions. It needs no server, so that it works in any state.
#include "common/base/version.h"

#include <ostream>

#include "client/commands/verbs.h"
#include "common/base/strings.h"

namespace trainyard::commands {
namespace {

Result PrintVersion(const Context& context) {
  if (context.options.format == Format::kJson || context.options.format == Format::kJsonLines) {
    context.out << "{\"version\": " << JsonQuote(Version()) << "}\n";
  } else {
    context.out << "trainyard " << Version() << "\n";
  }
  return link::kOk;
}

}  // namespace

void AddVersion(VerbTable& verbs) {
  verbs.Add("version", "Print the version", "", PrintVersion);
}

}  // namespace trainyard::commands
