// Makes the checks that need neither the data nor the devices. The trainer makes them too, since it
// reads specs that no server has seen.
#include "common/spec/training_checks.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/datasets.h"
#include "common/layers/plan.h"
#include "common/spec/interval.h"
#include "common/spec/layers.h"
#include "common/spec/network_limits.h"

namespace trainyard::spec {
namespace {

using Violations = std::vector<FieldViolation>;

// In He et al. 2015, section 4.2, these networks have 6 n + 2 layers. They are too narrow for
// larger images.
constexpr int64_t kCifarDepths[] = {20, 32, 44, 56, 110};

void CheckResnet(const v1::ResnetModel& resnet, Violations& violations) {
  const bool is_of_cifar = std::find(std::begin(kCifarDepths), std::end(kCifarDepths),
                                     resnet.depth()) != std::end(kCifarDepths);
  if (!is_of_cifar || resnet.stem() == v1::STEM_CIFAR) return;
  violations.push_back({"spec.model.resnet.stem",
                        absl::StrCat("imagenet does not go with a depth of ", resnet.depth(),
                                     "; use stem: cifar, or a depth of 18, 34, 50 or 101")});
}

void CheckModel(const v1::ModelSpec& model, Violations& violations) {
  if (model.has_resnet()) CheckResnet(model.resnet(), violations);
  CheckSampleSize(model, violations);
  if (model.has_layers()) {
    layers::PlanStack(ToStack(model.layers()), "spec.model.layers", violations);
  }
  const v1::Gpt2Model& gpt2 = model.gpt2();
  if (model.has_gpt2() && gpt2.heads() > 0 && gpt2.width() % gpt2.heads() != 0) {
    violations.push_back({"spec.model.gpt2.heads",
                          absl::StrCat(gpt2.heads(), " heads cannot share a width of ",
                                       gpt2.width(), " evenly; use a divisor of the width")});
  }
}

void CheckAugment(const v1::JobSpec& spec, Violations& violations) {
  if (!spec.data().augment().has_random_resized_crop()) return;
  const v1::RandomResizedCrop& crop = spec.data().augment().random_resized_crop();
  if (crop.min_area() <= crop.max_area()) return;
  violations.push_back({"spec.data.augment.random_resized_crop.min_area",
                        absl::StrCat(crop.min_area(), " is more than max_area, which is ",
                                     crop.max_area(), "; use less")});
}

void CheckOptimizer(const v1::JobSpec& spec, Violations& violations) {
  const auto check_nesterov = [&violations](const char* rule, bool nesterov, double momentum) {
    if (!nesterov || momentum > 0) return;
    violations.push_back(
        {absl::StrCat("spec.optimizer.", rule, ".nesterov"),
         absl::StrCat("needs momentum; set optimizer.", rule, ".momentum above 0, such as 0.9")});
  };
  const v1::OptimizerSpec& optimizer = spec.optimizer();
  check_nesterov("sgd", optimizer.sgd().nesterov(), optimizer.sgd().momentum());
  check_nesterov("lars", optimizer.lars().nesterov(), optimizer.lars().momentum());
}

void CheckMilestones(const v1::ScheduleSpec& schedule, Violations& violations) {
  const auto& milestones = schedule.step().milestones();
  for (int i = 1; i < milestones.size(); ++i) {
    if (milestones[i] > milestones[i - 1]) continue;
    violations.push_back({absl::StrCat("spec.schedule.step.milestones[", i, "]"),
                          absl::StrCat(milestones[i], " does not come after ", milestones[i - 1],
                                       "; expected ascending epochs")});
  }
}

void CheckInit(const v1::JobSpec& spec, Violations& violations) {
  if (!spec.has_init()) return;
  const std::string& path = spec.init().checkpoint();
  if (path.empty() && spec.init().job().empty()) {
    violations.push_back({"spec.init.checkpoint",
                          "must be given: the file of the initial weights; or init.job, which "
                          "names a checkpoint of a job, such as 12/best"});
  }
  if (!path.empty() && !spec.init().job().empty()) {
    violations.push_back(
        {"spec.init.job", absl::StrCat("cannot stand beside init.checkpoint, which is '", path,
                                       "'; leave one of them out")});
  }
  if (!spec.from_checkpoint().empty()) {
    violations.push_back({"spec.from_checkpoint",
                          "cannot stand beside init: it continues with the weights of the "
                          "checkpoint; leave one of them out"});
  }
  if (!path.empty() && !datasets::StaysBelow(path)) {
    violations.push_back(
        {"spec.init.checkpoint",
         absl::StrCat("'", path, "' leads out of the folder of data sets; leave out '..'")});
  }
  for (int i = 0; i < spec.init().skip_size(); ++i) {
    if (!spec.init().skip(i).empty()) continue;
    violations.push_back({absl::StrCat("spec.init.skip[", i, "]"),
                          "is empty, which begins every name; write a prefix such as 'fc.'"});
  }
}

void CheckInterval(const v1::Interval& every, const std::string& path, Violations& violations) {
  if (!every.has_time() || FromProto(every.time()) > absl::ZeroDuration()) return;
  violations.push_back({path + ".time", "0 is not accepted; expected more, such as '10 min'"});
}

}  // namespace

void CheckTraining(const v1::JobSpec& spec, std::vector<FieldViolation>& violations) {
  CheckModel(spec.model(), violations);
  CheckAugment(spec, violations);
  CheckOptimizer(spec, violations);
  CheckMilestones(spec.schedule(), violations);
  CheckInit(spec, violations);
  CheckInterval(spec.checkpoint().every(), "spec.checkpoint.every", violations);
  CheckInterval(spec.evaluate().every(), "spec.evaluate.every", violations);
  if (spec.evaluate().every().automatic()) {
    violations.push_back(
        {"spec.evaluate.every",
         "'auto' chooses the distance of checkpoints alone; write an interval such "
         "as '1 epoch'"});
  }
}

}  // namespace trainyard::spec
