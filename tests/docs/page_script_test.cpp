// SPDX-License-Identifier: Apache-2.0
#include "tests/docs/page_script.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/support/error_message.h"

namespace hearth::test {
namespace {

std::string failure(const std::string& page) {
  try {
    (void)page_script("page.md", page);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

TEST(PageScript, commands_are_run_and_configurations_checked) {
  const std::string script = page_script("page.md", "Do:\n```sh\nhearth doctor\n```\n```json\n{\"seed\": 1}\n```\n");
  EXPECT_PRED2(contains, script, "at 'page.md:2'\n");
  EXPECT_PRED2(contains, script, "check_command 'hearth doctor'\n\nhearth doctor\n");
  EXPECT_PRED2(contains, page_script("page.md", "```sh\nsource <(hearth completion bash)\n```\n"),
               "check_command 'hearth completion bash'");
  EXPECT_PRED2(contains, script, "{\"seed\": 1}\nEND_OF_SNIPPET\ncheck_config 'snippet_5.json'\n");
}

TEST(PageScript, comments_change_what_is_done_with_the_next_block_alone) {
  const std::string script =
      page_script("page.md",
                  "<!-- test before: int main() { -->\n<!-- test after:\n} -->\n```cpp\nf();\n```\n```cpp\ng();\n```\n"
                  "<!-- test file: main.cpp -->\n```cpp\nh();\n```\n<!-- test skip: it's long -->\n```sh\nhearth train "
                  "x.json # y\n```\n"
                  "<!-- test quote: core/a.h -->\n```cpp\nq();\n```\n<!-- test setup: touch a -->\n");
  EXPECT_PRED2(contains, script, "'snippet_4.cpp' <<'END_OF_SNIPPET'\n int main() { f();\n\n} \nEND_OF_SNIPPET");
  EXPECT_PRED2(contains, script, "<<'END_OF_SNIPPET'\ng();\nEND_OF_SNIPPET\ncompile_and_run 'snippet_7.cpp'");
  EXPECT_PRED2(contains, script, "cat >'main.cpp' <<'END_OF_SNIPPET'\nh();\nEND_OF_SNIPPET\n");
  EXPECT_EQ(script.find("compile_and_run 'main.cpp'"), std::string::npos);
  EXPECT_PRED2(contains, script, "skipped 'it'\\''s long'\ncheck_command 'hearth train x.json '\n");
  EXPECT_PRED2(contains, script, "check_quote 'snippet_19.cpp' 'core/a.h'");
  EXPECT_PRED2(contains, script, "\ntouch a\n");
}

TEST(PageScript, rows_of_a_table_are_compiled_and_run) {
  const std::string script = page_script("page.md",
                                         "<!-- test rows: int x = 1; -->\n| a | b | c |\n|---|---|---|\n| `q` | `x` → "
                                         "`1`, `a; f(x)` → `2`, `f(x)` | `no` |\n\n");
  EXPECT_PRED2(contains, script, "void row_4() {\nint x = 1;\n#line 4 \"page.md\"\nprints(4, R\"row(1)row\", x);\n");
  EXPECT_PRED2(contains, script, "\na; prints(4, R\"row(2)row\", f(x));\n");
  EXPECT_PRED2(contains, script, "\nf(x);\n}\n");
  EXPECT_PRED2(contains, script, "run(4, row_4);\n");
  EXPECT_PRED2(contains, script, "compile_and_run 'rows.cpp'");
  EXPECT_EQ(script.find("no;"), std::string::npos);
  EXPECT_PRED2(contains, failure("<!-- test rows: x -->\n| a | b |\n|---|---|\n| `q` | words |\n"),
               "page.md:4: a row whose second column has no code");
  EXPECT_PRED2(contains, failure("<!-- test rows: x -->\n| a |\n|---|\n| `q` |\n"), "fewer than two columns");
}

TEST(PageScript, prose_is_looked_at) {
  const std::string script = page_script(
      "docs/page.md",
      "Use `hearth eval RUN --json`, `core/io/file.h`, [this](runs.md#signals) and [that](https://x.org).\n");
  EXPECT_PRED2(contains, script, "check_command 'hearth eval RUN --json'");
  EXPECT_PRED2(contains, script, "check_path 'core/io/file.h'");
  EXPECT_PRED2(contains, script, "check_link 'docs/page.md' 'runs.md'");
  EXPECT_EQ(script.find("x.org"), std::string::npos);
}

TEST(PageScript, blocks_that_no_test_would_see_are_refused) {
  EXPECT_PRED2(contains, failure("a\n\n    hearth train\n"), "page.md:3: an indented block");
  EXPECT_PRED2(contains, failure("```\nhearth train\n```\n"), "page.md:1: a block of \"\"");
  EXPECT_PRED2(contains, failure("```python\nx\n```\n"), "page.md:1: a block of \"python\"");
  EXPECT_PRED2(contains, failure("a\n```sh\nls\n"), "page.md:2: a block without an end");
  EXPECT_PRED2(contains, failure("<!-- test skip: -->\n```sh\nls\n```\n"), "nothing is said by \"test skip\"");
  EXPECT_PRED2(contains, failure("<!-- test skpi: x -->\n"), "unknown comment of the tests: skpi");
  EXPECT_PRED2(contains, failure("<!-- test skip: x -->\ntext\n"), "without a block behind it");
  EXPECT_EQ(failure("- a list\n\n    of two paragraphs\n<!-- a comment -->\n"), "");
}

}  // namespace
}  // namespace hearth::test
