// Scales the rate with the batch and warms it up (Goyal et al. 2017, arXiv:1706.02677), and puts
// other optimizers in the place of the spec's own, such as LARS (You et al. 2017,
// arXiv:1708.03888).
#include "client/commands/batch_study_specs.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/spec/resolve.h"

namespace trainyard::commands {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr size_t kStudyNameBytesMax = 63;
// Goyal et al. warm up for five of 90 epochs. Shorter trainings cannot spend as many on it.
constexpr double kWarmupEpochsMax = 5;
constexpr double kWarmupShare = 0.1;

// The rate of an optimizer that is not the spec's own. The steps of all of these but sgd do not
// depend on the size of the gradients, so that one rate suits many networks. That of LARS is the
// one of You et al. 2017 for AlexNet.
struct UsualRate {
  const char* optimizer;
  double lr;
};
constexpr UsualRate kUsualRates[] = {
    {"sgd", 0.1}, {"lars", 2}, {"adam", 0.001}, {"adamw", 0.001}, {"lamb", 0.002}};

const FieldDescriptor* RuleOf(const v1::OptimizerSpec& optimizer) {
  return optimizer.GetReflection()->GetOneofFieldDescriptor(
      optimizer, v1::OptimizerSpec::descriptor()->FindOneofByName("rule"));
}

const FieldDescriptor* FindRule(const std::string& name) {
  const auto* rules = v1::OptimizerSpec::descriptor()->FindOneofByName("rule");
  for (int i = 0; i < rules->field_count(); ++i) {
    if (rules->field(i)->name() == name) return rules->field(i);
  }
  return nullptr;
}

absl::Status UnknownOptimizer(const std::string& name) {
  const auto* rules = v1::OptimizerSpec::descriptor()->FindOneofByName("rule");
  std::vector<std::string> known;
  for (int i = 0; i < rules->field_count(); ++i) known.push_back(rules->field(i)->name());
  std::sort(known.begin(), known.end());
  return absl::InvalidArgumentError(
      absl::StrCat("there is no optimizer '", name, "'; known are ", absl::StrJoin(known, ", ")));
}

// Returns true if weight decay is taken off the weights, and not added to the gradient. One number
// does not mean the same in both.
bool HasDecoupledDecay(absl::string_view rule) {
  return rule == "adamw" || rule == "lamb";
}

// Puts another rule in the place of the spec's own, with those of its values that mean the same.
void SwitchRule(v1::OptimizerSpec& optimizer, const FieldDescriptor& to) {
  const FieldDescriptor* from = RuleOf(optimizer);
  if (from == &to) return;
  const v1::OptimizerSpec before = optimizer;
  const Message& old_rule = before.GetReflection()->GetMessage(before, from);
  Message& rule = *optimizer.GetReflection()->MutableMessage(&optimizer, &to);
  for (const char* name : {"momentum", "nesterov", "betas", "weight_decay"}) {
    const FieldDescriptor* source = old_rule.GetDescriptor()->FindFieldByName(name);
    const FieldDescriptor* field = rule.GetDescriptor()->FindFieldByName(name);
    if (source == nullptr || field == nullptr) continue;
    const bool is_decay = absl::string_view(name) == "weight_decay";
    if (is_decay && HasDecoupledDecay(from->name()) != HasDecoupledDecay(to.name())) continue;
    const auto* of_old = old_rule.GetReflection();
    const auto* of_new = rule.GetReflection();
    if (field->is_repeated()) {
      for (int i = 0; i < of_old->FieldSize(old_rule, source); ++i) {
        of_new->AddDouble(&rule, field, of_old->GetRepeatedDouble(old_rule, source, i));
      }
    } else if (of_old->HasField(old_rule, source)) {
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_BOOL) {
        of_new->SetBool(&rule, field, of_old->GetBool(old_rule, source));
      } else {
        of_new->SetDouble(&rule, field, of_old->GetDouble(old_rule, source));
      }
    }
  }
}

double LrOf(const v1::OptimizerSpec& optimizer) {
  const FieldDescriptor* field = RuleOf(optimizer);
  if (field == nullptr) return 0;
  const Message& rule = optimizer.GetReflection()->GetMessage(optimizer, field);
  return rule.GetReflection()->GetDouble(rule, rule.GetDescriptor()->FindFieldByName("lr"));
}

void SetLr(v1::OptimizerSpec& optimizer, double lr) {
  Message& rule = *optimizer.GetReflection()->MutableMessage(&optimizer, RuleOf(optimizer));
  rule.GetReflection()->SetDouble(&rule, rule.GetDescriptor()->FindFieldByName("lr"), lr);
}

double FactorOf(StudyScaling scaling, int64_t batch, int64_t base) {
  const double ratio = static_cast<double>(batch) / static_cast<double>(base);
  switch (scaling) {
    case StudyScaling::kLinear:
      return ratio;
    case StudyScaling::kSquareRoot:
      return std::sqrt(ratio);
    case StudyScaling::kNone:
      break;
  }
  return 1;
}

// Returns a rate without the digits that come from its computation, as people would write it.
double Rounded(double lr) {
  constexpr int kDigits = 6;
  const double unit = std::pow(10, std::floor(std::log10(lr)) + 1 - kDigits);
  return unit >= 1 ? std::round(lr / unit) * unit : std::round(lr / unit) / std::round(1 / unit);
}

int64_t StepsAt(int64_t steps, int64_t base, int64_t batch) {
  const double scaled =
      static_cast<double>(steps) * static_cast<double>(base) / static_cast<double>(batch);
  return std::max<int64_t>(std::llround(scaled), 1);
}

// Makes the specs of one study.
class SpecMaker {
 public:
  SpecMaker(const v1::JobSpec& written, const v1::JobSpec& resolved, const StudyPlan& plan)
      : written_(written),
        resolved_(resolved),
        plan_(plan),
        base_(plan.base_batch > 0 ? plan.base_batch : resolved.train().global_batch()) {}

  StudySpec Make(const FieldDescriptor& rule, int64_t batch) const {
    StudySpec made;
    made.optimizer = rule.name();
    made.batch = batch;
    made.lr = Rounded(BaseRate(rule.name()) * FactorOf(plan_.scaling, batch, base_));
    made.spec = written_;
    const std::string suffix = absl::StrCat("-b", batch, "-", rule.name());
    made.spec.set_name(
        absl::StrCat(written_.name().substr(0, kStudyNameBytesMax - suffix.size()), suffix));
    SwitchRule(*made.spec.mutable_optimizer(), rule);
    SetLr(*made.spec.mutable_optimizer(), made.lr);
    made.spec.mutable_optimizer()->clear_lr_base_batch();
    SetSchedule(made, batch);
    v1::TrainSpec& train = *made.spec.mutable_train();
    train.set_global_batch(batch);
    if (train.has_steps()) train.set_steps(StepsAt(train.steps(), base_, batch));
    if (const int64_t every = written_.evaluate().every().steps(); every > 0) {
      made.spec.mutable_evaluate()->mutable_every()->set_steps(StepsAt(every, base_, batch));
    }
    return made;
  }

 private:
  // Returns the rate at the base batch.
  double BaseRate(const std::string& optimizer) const {
    const auto given = plan_.rates.find(optimizer);
    if (given != plan_.rates.end()) return given->second;
    if (optimizer != StudyOptimizerOf(resolved_)) {
      for (const UsualRate& usual : kUsualRates) {
        if (optimizer == usual.optimizer) return usual.lr;
      }
    }
    const double lr = LrOf(resolved_.optimizer());
    const int64_t own = resolved_.optimizer().lr_base_batch();
    return own > 0 ? lr * static_cast<double>(base_) / static_cast<double>(own) : lr;
  }

  void SetSchedule(StudySpec& made, int64_t batch) const {
    v1::ScheduleSpec& schedule = *made.spec.mutable_schedule();
    // The rate at the end stays the same share of the rate at the beginning.
    const double share = made.lr / LrOf(resolved_.optimizer());
    if (schedule.cosine().has_final_lr()) {
      schedule.mutable_cosine()->set_final_lr(schedule.cosine().final_lr() * share);
    }
    if (schedule.polynomial().has_final_lr()) {
      schedule.mutable_polynomial()->set_final_lr(schedule.polynomial().final_lr() * share);
    }
    const v1::ScheduleSpec& own = resolved_.schedule();
    const v1::TrainSpec& train = resolved_.train();
    if (plan_.has_no_warmup) {
      schedule.set_warmup_epochs(0);
    } else if (plan_.warmup.has_value() && plan_.warmup->has_steps()) {
      schedule.set_warmup_steps(StepsAt(plan_.warmup->steps(), base_, batch));
    } else if (plan_.warmup.has_value()) {
      schedule.set_warmup_epochs(static_cast<double>(plan_.warmup->epochs()));
    } else if (own.warmup_steps() > 0) {
      schedule.set_warmup_steps(StepsAt(own.warmup_steps(), base_, batch));
    } else if (own.warmup_epochs() > 0) {
      schedule.set_warmup_epochs(own.warmup_epochs());
    } else if (train.has_steps()) {
      const auto steps = static_cast<double>(train.steps()) * kWarmupShare;
      schedule.set_warmup_steps(StepsAt(std::llround(steps), base_, batch));
    } else {
      schedule.set_warmup_epochs(
          std::min(static_cast<double>(train.epochs()) * kWarmupShare, kWarmupEpochsMax));
    }
  }

  const v1::JobSpec& written_;
  const v1::JobSpec& resolved_;
  const StudyPlan& plan_;
  const int64_t base_;
};

}  // namespace

std::string StudyOptimizerOf(const v1::JobSpec& spec) {
  const FieldDescriptor* rule = RuleOf(spec.optimizer());
  return rule == nullptr ? "" : rule->name();
}

double StudyRateOf(const v1::JobSpec& resolved) {
  const double lr = LrOf(resolved.optimizer());
  const int64_t base = resolved.optimizer().lr_base_batch();
  if (base <= 0) return lr;
  return lr * static_cast<double>(resolved.train().global_batch()) / static_cast<double>(base);
}

std::string StudyTitleOf(const std::string& job_name, int64_t batch, const std::string& optimizer) {
  const std::string suffix = absl::StrCat("-b", batch, "-", optimizer);
  if (!absl::EndsWith(job_name, suffix) || job_name.size() == suffix.size()) return job_name;
  return job_name.substr(0, job_name.size() - suffix.size());
}

absl::StatusOr<std::vector<StudySpec>> MakeStudySpecs(const v1::JobSpec& written,
                                                      const StudyPlan& plan) {
  TY_ASSIGN_OR_RETURN(const v1::JobSpec resolved, spec::ResolveSpec(written));
  std::vector<std::string> optimizers = plan.optimizers;
  if (optimizers.empty()) optimizers = {StudyOptimizerOf(resolved)};
  const SpecMaker maker(written, resolved, plan);
  std::vector<StudySpec> made;
  for (const auto& [name, rate] : plan.rates) {
    if (FindRule(name) == nullptr) return UnknownOptimizer(name);
    if (std::find(optimizers.begin(), optimizers.end(), name) == optimizers.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--lr gives a rate of '", name,
                       "', which is not trained with; add it to --optimizers, which are ",
                       absl::StrJoin(optimizers, ",")));
    }
  }
  for (const std::string& name : optimizers) {
    const FieldDescriptor* rule = FindRule(name);
    if (rule == nullptr) return UnknownOptimizer(name);
    for (const int64_t batch : plan.batches) made.push_back(maker.Make(*rule, batch));
  }
  return made;
}

}  // namespace trainyard::commands
