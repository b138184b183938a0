// Applies the changes of the command line to a spec before any rule is checked, so that the rules
// see the spec as it would be submitted.
#include "client/commands/load_spec.h"

#include <ostream>
#include <utility>

#include "client/commands/bundle_spec.h"
#include "client/commands/saved_specs.h"
#include "common/base/status_macros.h"
#include "common/spec/change.h"

namespace trainyard::commands {
namespace {

template <typename Read>
auto Interruptibly(const Context& context, Read read) {
  context.interrupt.AllowExit(true);
  auto result = read();
  context.interrupt.AllowExit(false);
  return result;
}

}  // namespace

absl::StatusOr<spec_loader::SpecFile> ReadSpec(const Context& context, const std::string& path) {
  if (IsBundleSource(path)) {
    TY_ASSIGN_OR_RETURN(const spec_loader::SpecText text, ReadBundleSpec(context, path));
    return spec_loader::ParseSpecText(text);
  }
  if (MeansSavedSpec(path)) {
    TY_ASSIGN_OR_RETURN(const spec_loader::SpecText text, ReadSavedSpec(context, path));
    return spec_loader::ParseSpecText(text);
  }
  return Interruptibly(context, [&] { return spec_loader::ReadSpecFile(path); });
}

absl::StatusOr<std::vector<spec_loader::SpecText>> ReadSpecs(const Context& context,
                                                             const std::string& path) {
  if (IsBundleSource(path)) {
    TY_ASSIGN_OR_RETURN(spec_loader::SpecText text, ReadBundleSpec(context, path));
    return std::vector<spec_loader::SpecText>{std::move(text)};
  }
  if (MeansSavedSpec(path)) {
    TY_ASSIGN_OR_RETURN(spec_loader::SpecText text, ReadSavedSpec(context, path));
    return std::vector<spec_loader::SpecText>{std::move(text)};
  }
  return Interruptibly(context, [&] { return spec_loader::ReadSpecTexts(path); });
}

absl::StatusOr<std::vector<std::string>> ApplyChanges(const SpecFlags& flags,
                                                      spec_loader::SpecFile& file) {
  TY_ASSIGN_OR_RETURN(const std::vector<Change> changes, ChangesOf(flags));
  std::vector<std::string> changed;
  if (!file.is_readable) return changed;
  for (const Change& change : changes) {
    changed.push_back(change.path);
    const absl::Status status = spec::ApplyChange(file.spec, change.path, change.value);
    spec_loader::AddViolations(file, GetFieldViolations(status), changed);
  }
  spec_loader::AddRuleMistakes(file, file.spec, changed);
  return changed;
}

Result TellMistakes(const Context& context, const spec_loader::SpecFile& file,
                    absl::string_view consequence) {
  context.err << spec_loader::RenderMistakes(file, context.terminal.color)
              << context.terminal.Style("1;31", "error:") << " "
              << Counted(file.mistakes.size(), "mistake") << " in " << file.name << "; "
              << consequence << "\n";
  return link::kUsage;
}

}  // namespace trainyard::commands
