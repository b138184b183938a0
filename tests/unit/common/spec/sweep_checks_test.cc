// Tests what is said about sweeps that cannot begin.
#include "common/spec/sweep_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/spec/resolve.h"
#include "tests/unit/common/spec/spec_fixture.h"

namespace trainyard::spec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

v1::JobSpec Searching(const std::string& path, const std::string& values) {
  v1::JobSpec spec = ValidSpec();
  (*spec.mutable_sweep()->mutable_parameters())[path] = values;
  spec.mutable_sweep()->set_maximize("test.accuracy");
  spec.mutable_sweep()->set_trials(4);
  return spec;
}

std::vector<std::string> MistakesIn(const v1::JobSpec& spec) {
  std::vector<std::string> mistakes;
  v1::JobSpec resolved;
  for (const FieldViolation& violation : ResolveInto(spec, resolved)) {
    mistakes.push_back(violation.field + ": " + violation.description);
  }
  return mistakes;
}

TEST(SweepChecks, AJobHasNoSweepAndASweepGetsItsDefaults) {
  v1::JobSpec resolved;
  EXPECT_THAT(ResolveInto(ValidSpec(), resolved), IsEmpty());
  EXPECT_FALSE(resolved.has_sweep());
  EXPECT_THAT(ResolveInto(Searching("optimizer.sgd.lr", "log(1e-4, 1)"), resolved), IsEmpty());
  EXPECT_EQ(resolved.sweep().search(), v1::SWEEP_SEARCH_RANDOM);
  EXPECT_EQ(resolved.sweep().factor(), 4);
}

TEST(SweepChecks, EachMistakeIsAtItsParameter) {
  EXPECT_THAT(MistakesIn(Searching("optimizer.sgd.lr", "log(0, 1)")),
              ElementsAre(HasSubstr("spec.sweep.parameters.optimizer.sgd.lr: ")));
  EXPECT_THAT(MistakesIn(Searching("optimizer.sgd.lrx", "log(1e-4, 1)")),
              ElementsAre(HasSubstr("did you mean 'lr'")));
  EXPECT_THAT(MistakesIn(Searching("train.seed", "uniform(0, 1)")),
              ElementsAre(HasSubstr("spec.sweep.parameters.train.seed: ")));
  EXPECT_THAT(MistakesIn(Searching("name", "[a, b]")),
              ElementsAre(HasSubstr("cannot be searched")));
  EXPECT_THAT(MistakesIn(Searching("sweep.trials", "[1, 2]")),
              ElementsAre(HasSubstr("cannot be searched")));
}

TEST(SweepChecks, TheObjectiveIsReportedByTheTrials) {
  v1::JobSpec spec = Searching("optimizer.sgd.lr", "log(1e-4, 1)");
  spec.mutable_sweep()->set_maximize("test.acuracy");
  EXPECT_THAT(MistakesIn(spec),
              ElementsAre("spec.sweep.maximize: 'test.acuracy' is reported by no training; did you "
                          "mean 'test.accuracy'?"));
  spec.mutable_sweep()->set_minimize("val_loss");
  EXPECT_THAT(MistakesIn(spec), ElementsAre(HasSubstr("spec.sweep.minimize: 'val_loss'")));
  spec.mutable_sweep()->set_minimize("test.ema_loss");
  EXPECT_THAT(MistakesIn(spec), ElementsAre(HasSubstr("needs optimizer.ema_decay")));
  spec.mutable_optimizer()->set_ema_decay(0.999);
  EXPECT_THAT(MistakesIn(spec), IsEmpty());
  spec.mutable_sweep()->set_minimize("test.ema_los");
  EXPECT_THAT(MistakesIn(spec), ElementsAre(HasSubstr("did you mean 'test.ema_loss'?")));
  spec.mutable_sweep()->set_minimize("test.ema_loss");
  spec.mutable_optimizer()->clear_ema_decay();
  (*spec.mutable_sweep()->mutable_parameters())["optimizer.ema_decay"] = "[0, 0.999]";
  EXPECT_THAT(MistakesIn(spec), IsEmpty());
  for (const char* name : {"train.loss", "test.perplexity", "samples_per_s"}) {
    spec.mutable_sweep()->set_minimize(name);
    EXPECT_THAT(MistakesIn(spec), IsEmpty()) << name;
  }
}

TEST(SweepChecks, AProgramReportsWhatItLikes) {
  v1::JobSpec spec;
  spec.set_name("program");
  spec.mutable_program()->add_command("true");
  (*spec.mutable_program()->mutable_params())["lr"] = "1";
  (*spec.mutable_sweep()->mutable_parameters())["program.params.lr"] = "[1, 2]";
  spec.mutable_sweep()->set_maximize("score");
  spec.mutable_sweep()->set_trials(2);
  EXPECT_THAT(MistakesIn(spec), IsEmpty());
}

TEST(SweepChecks, NumbersGoTogether) {
  v1::JobSpec spec = Searching("optimizer.sgd.lr", "log(1e-4, 1)");
  spec.mutable_sweep()->set_search(v1::SWEEP_SEARCH_GRID);
  EXPECT_THAT(MistakesIn(spec), ElementsAre(HasSubstr("log(1e-4, 1, 5)")));
  (*spec.mutable_sweep()->mutable_parameters())["optimizer.sgd.lr"] = "log(1e-4, 1, 5)";
  EXPECT_THAT(MistakesIn(spec), IsEmpty());
  (*spec.mutable_sweep()->mutable_parameters())["train.seed"] = "int(1, 10000, 1000)";
  (*spec.mutable_sweep()->mutable_parameters())["optimizer.sgd.momentum"] = "uniform(0, 0.9, 9)";
  EXPECT_THAT(MistakesIn(spec), ElementsAre(HasSubstr("more than 10000 points")));
  spec = Searching("optimizer.sgd.lr", "log(1e-4, 1)");
  spec.mutable_sweep()->clear_trials();
  EXPECT_THAT(MistakesIn(spec), ElementsAre(HasSubstr("spec.sweep.trials: must be given")));
  spec.mutable_sweep()->set_trials(1);
  spec.mutable_sweep()->set_search(v1::SWEEP_SEARCH_PBT);
  EXPECT_THAT(MistakesIn(spec), ElementsAre(HasSubstr("expected 2 or more")));
  spec = Searching("optimizer.sgd.lr", "log(1e-4, 1)");
  spec.mutable_sweep()->clear_objective();
  EXPECT_THAT(MistakesIn(spec), ElementsAre(HasSubstr("maximize")));
}

}  // namespace
}  // namespace trainyard::spec
