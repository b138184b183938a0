// Tests the rules of specs that run a program in place of a model's training.
#include "common/spec/program_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "common/base/errors.h"
#include "common/spec/array.h"
#include "common/spec/resolve.h"

namespace trainyard::spec {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

v1::JobSpec ProgramJob() {
  v1::JobSpec spec;
  spec.set_name("train");
  spec.mutable_program()->add_command("python3");
  spec.mutable_program()->add_command("train.py");
  return spec;
}

// Returns the only violation of `spec`.
FieldViolation OnlyMistake(const v1::JobSpec& spec) {
  const auto violations = GetFieldViolations(ResolveSpec(spec).status());
  EXPECT_EQ(violations.size(), 1u);
  return violations.empty() ? FieldViolation() : violations.front();
}

TEST(ProgramSpec, NeedsNothingOfAModel) {
  const auto resolved = ResolveSpec(ProgramJob());
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_FALSE(resolved->has_train());
  EXPECT_FALSE(resolved->has_schedule());
  EXPECT_FALSE(resolved->has_evaluate());
  EXPECT_EQ(resolved->devices().count(), 1);
}

TEST(ProgramSpec, EmptyDataAreNone) {
  v1::JobSpec spec = ProgramJob();
  spec.mutable_data();
  const auto resolved = ResolveSpec(spec);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_FALSE(resolved->has_data());
}

TEST(ProgramSpec, MayDoWithoutADevice) {
  v1::JobSpec spec = ProgramJob();
  spec.mutable_devices()->set_count(0);
  spec.mutable_resources()->set_cpus(8);
  const auto resolved = ResolveSpec(spec);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(resolved->devices().count(), 0);
  EXPECT_EQ(resolved->resources().cpus(), 8);

  spec.mutable_devices()->set_type("h200");
  EXPECT_THAT(OnlyMistake(spec).description, HasSubstr("devices.type"));

  v1::JobSpec model;
  model.set_name("train");
  model.mutable_model()->mutable_mlp();
  model.mutable_devices()->set_count(0);
  const auto violations = GetFieldViolations(ResolveSpec(model).status());
  const bool is_refused =
      std::any_of(violations.begin(), violations.end(), [](const FieldViolation& violation) {
        return violation.field == "spec.devices.count" &&
               violation.description.find("for a program alone") != std::string::npos;
      });
  EXPECT_TRUE(is_refused);
}

TEST(ProgramSpec, StandsBesideNoModel) {
  v1::JobSpec spec = ProgramJob();
  spec.mutable_model()->mutable_mlp();
  EXPECT_EQ(OnlyMistake(spec).field, "spec.model");
}

TEST(ProgramSpec, HasACommandOrAScript) {
  v1::JobSpec spec = ProgramJob();
  spec.mutable_program()->set_script("echo");
  EXPECT_EQ(OnlyMistake(spec).field, "spec.program.script");
  spec.mutable_program()->clear_script();
  spec.mutable_program()->clear_command();
  EXPECT_THAT(OnlyMistake(spec).description, HasSubstr("must have a command"));
  spec.mutable_program()->add_command("");
  EXPECT_EQ(OnlyMistake(spec).field, "spec.program.command[0]");
}

TEST(ProgramSpec, OutputsStayBelowItsFolder) {
  v1::JobSpec spec = ProgramJob();
  spec.add_outputs("results/**");
  spec.add_outputs("a..b");
  EXPECT_TRUE(ResolveSpec(spec).ok());
  spec.set_outputs(1, "a/../../b");
  EXPECT_EQ(OnlyMistake(spec).field, "spec.outputs[1]");
  spec.set_outputs(1, std::string(257, 'a'));
  EXPECT_THAT(OnlyMistake(spec).description, HasSubstr("at most 256"));
  for (int i = 0; i < 63; ++i) spec.add_outputs("a");
  spec.set_outputs(1, "a");
  EXPECT_THAT(OnlyMistake(spec).description, HasSubstr("65 patterns"));
}

TEST(ProgramSpec, DevicesOfOneProcessAreNotSpread) {
  v1::JobSpec spec = ProgramJob();
  spec.mutable_program()->set_ranks(v1::PROGRAM_RANKS_ONE);
  EXPECT_TRUE(ResolveSpec(spec).ok());
  spec.mutable_devices()->set_spread(true);
  EXPECT_EQ(OnlyMistake(spec).field, "spec.devices.spread");
}

TEST(ProgramSpec, NamesOfTrainyardAreItsOwn) {
  v1::JobSpec spec = ProgramJob();
  (*spec.mutable_program()->mutable_env())["TRAINYARD_RUN_DIR"] = "/tmp";
  EXPECT_EQ(OnlyMistake(spec).field, "spec.program.env.TRAINYARD_RUN_DIR");
}

TEST(ProgramSpec, WhatNoProgramCanBeGivenIsRefused) {
  v1::JobSpec spec = ProgramJob();
  spec.mutable_program()->set_command(1, std::string("a\0b", 3));
  EXPECT_THAT(OnlyMistake(spec).description, HasSubstr("NUL character at byte 1"));
}

TEST(ProgramSpec, GeneratedDataHasNoFiles) {
  v1::JobSpec spec = ProgramJob();
  spec.mutable_data()->set_dataset("glyphs");
  EXPECT_EQ(OnlyMistake(spec).field, "spec.data.dataset");
  spec.mutable_data()->set_dataset("cifar10");
  EXPECT_TRUE(ResolveSpec(spec).ok());
}

TEST(ProgramSpec, OneEnvironmentOfPythonIsEnough) {
  v1::JobSpec spec = ProgramJob();
  spec.mutable_program()->mutable_environment()->set_venv("~/envs/torch");
  EXPECT_TRUE(ResolveSpec(spec).ok());
  spec.mutable_program()->mutable_environment()->set_conda("torch");
  EXPECT_EQ(OnlyMistake(spec).field, "spec.program.environment.conda");
}

TEST(ProgramSpec, FoldersAreAbsoluteOrBelowTheHome) {
  v1::JobSpec spec = ProgramJob();
  for (const char* good : {"/srv/code", "~", "~/code"}) {
    spec.mutable_program()->set_directory(good);
    EXPECT_TRUE(ResolveSpec(spec).ok()) << good;
  }
  spec.mutable_program()->set_directory("code");
  EXPECT_EQ(OnlyMistake(spec).field, "spec.program.directory");
}

TEST(ProgramSpec, WithCodeAFolderMayLieBelowIt) {
  v1::JobSpec spec = ProgramJob();
  spec.mutable_program()->set_code(".");
  for (const char* good : {"", "src", "src/train", "/srv", "~/a"}) {
    spec.mutable_program()->set_directory(good);
    EXPECT_TRUE(ResolveSpec(spec).ok()) << good;
  }
  spec.mutable_program()->set_directory("src/../..");
  EXPECT_EQ(OnlyMistake(spec).field, "spec.program.directory");
}

TEST(ProgramSpec, ElementsOfAnArrayDifferInTheirIndex) {
  const auto resolved = ResolveSpec(ProgramJob());
  ASSERT_TRUE(resolved.ok());
  const v1::JobSpec element = ArrayElement(*resolved, 7);
  EXPECT_EQ(element.program().env().at(kArrayIndexVariable), "7");
  EXPECT_EQ(element.name(), "train-7");
  EXPECT_THAT(GetFieldViolations(ResolveSpec(element).status()), IsEmpty())
      << "an element can be cloned";
}

}  // namespace
}  // namespace trainyard::spec
