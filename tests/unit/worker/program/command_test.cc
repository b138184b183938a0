// Tests the words and texts that a program's spec becomes.
#include "worker/program/command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trainyard::program {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Command, BracesOfKnownParametersAreReplacedOnce) {
  const std::map<std::string, std::string> params = {{"lr", "0.1"}, {"name", "{lr}"}};
  EXPECT_EQ(Substitute("--lr={lr}", params), "--lr=0.1");
  EXPECT_EQ(Substitute("{name}{lr}", params), "{lr}0.1") << "a value is not looked at again";
  EXPECT_EQ(Substitute("{\"a\": {lr}}", params), "{\"a\": 0.1}");
  EXPECT_EQ(Substitute("${HOME} {} {x", params), "${HOME} {} {x");
}

TEST(Command, WithoutPreparationTheWordsAreThoseOfTheSpec) {
  ProgramSpec spec;
  spec.command = {"python3", "train.py", "--lr", "{lr}"};
  spec.params = {{"lr", "0.1"}};
  EXPECT_THAT(CommandWords(spec, "/s", "/r"), ElementsAre("python3", "train.py", "--lr", "0.1"));
  spec.command.clear();
  spec.script = "echo {lr}";
  EXPECT_THAT(CommandWords(spec, "/s", "/r"), ElementsAre("/s"));
}

TEST(Command, AShellPreparesTheEnvironmentAndBecomesTheProgram) {
  ProgramSpec spec;
  spec.command = {"a b", "c'd"};
  spec.modules = {"cuda/12.4"};
  spec.conda = "my env";
  spec.setup = "export X=1";
  const auto words = CommandWords(spec, "/s", "/it's");
  ASSERT_EQ(words.size(), 6u);
  EXPECT_EQ(words[0], "/bin/bash");
  EXPECT_THAT(words[2], HasSubstr("module load 'cuda/12.4'\n"));
  EXPECT_THAT(words[2],
              HasSubstr("conda activate 'my env'\nexport X=1\n: >'/it'\\''s'\nexec \"$@\"\n"));
  EXPECT_EQ(words[4], "a b");
  EXPECT_EQ(words[5], "c'd") << "words pass the shell unchanged";
}

TEST(Command, AScriptHasAnInterpreter) {
  EXPECT_EQ(ScriptText("echo hi"), "#!/bin/sh\necho hi\n");
  EXPECT_EQ(ScriptText("#!/usr/bin/env python3\nprint()\n"), "#!/usr/bin/env python3\nprint()\n");
}

TEST(Params, AreJsonWhereTheyAreJson) {
  EXPECT_EQ(ParamsJson({{"a", "5"},
                        {"b", "0.1"},
                        {"c", "true"},
                        {"d", "[1, 2]"},
                        {"e", "adam"},
                        {"f", "\"5\""},
                        {"g", "1.2.3"}}),
            "{\n  \"a\": 5,\n  \"b\": 0.1,\n  \"c\": true,\n  \"d\": [\n    1,\n    2\n  ],\n"
            "  \"e\": \"adam\",\n  \"f\": \"5\",\n  \"g\": \"1.2.3\"\n}\n");
}

TEST(ProgramSpec, IsReadFromTheAssignment) {
  const auto spec = ReadProgramSpec(
      R"({"program": {"command": ["a", "b"], "params": {"x": "1"}, "env": {"E": "2"},
          "ranks": "PROGRAM_RANKS_HOST", "directory": "/d",
          "environment": {"venv": "~/v", "modules": ["m"], "setup": "s"}},
          "data": {"dataset": "cifar10"}, "name": "j"})",
      "assignment.json");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_THAT(spec->command, ElementsAre("a", "b"));
  EXPECT_EQ(spec->params.at("x"), "1");
  EXPECT_EQ(spec->env.at("E"), "2");
  EXPECT_TRUE(spec->is_per_host);
  EXPECT_EQ(spec->directory, "/d");
  EXPECT_EQ(spec->venv, "~/v");
  EXPECT_THAT(spec->modules, ElementsAre("m"));
  EXPECT_EQ(spec->setup, "s");
  EXPECT_EQ(spec->dataset, "cifar10");
}

TEST(ProgramSpec, MistakesAreNamed) {
  const auto message = [](const char* json) {
    return std::string(ReadProgramSpec(json, "assignment.json").status().message());
  };
  EXPECT_THAT(message("[]"), HasSubstr("no JSON object"));
  EXPECT_THAT(message("{}"), HasSubstr("has no program"));
  EXPECT_THAT(message(R"({"program": {}})"), HasSubstr("neither a command nor a script"));
  EXPECT_THAT(message(R"({"program": {"command": ["a", 1]}})"), HasSubstr("spec.program.command"));
  EXPECT_THAT(message(R"({"program": {"script": 1}})"), HasSubstr("spec.program.script"));
}

}  // namespace
}  // namespace trainyard::program
