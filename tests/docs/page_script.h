// SPDX-License-Identifier: Apache-2.0
// Makes a shell script of a page of the documentation, which runs its commands and checks its snippets in their order.
//
// Each fenced block names its language:
//   sh      its commands are run                json    is a configuration that Hearth accepts
//   cpp     is compiled, and run if it has main cmake   is saved (test file)
//   text    is shown only                       python  is quoted or skipped
// An HTML comment before a block says more of it; readers do not see it:
//   <!-- test file: NAME -->      the block is saved as NAME for the commands that follow, and not run by itself
//   <!-- test before: CODE -->    CODE comes before the block; it may have several lines
//   <!-- test after: CODE -->     CODE comes behind it
//   <!-- test quote: PATH -->     each line of the block is one of the file PATH
//   <!-- test output: COMMAND --> the block is what COMMAND prints, whatever its spaces
//   <!-- test skip: REASON -->    the block is not run, because of REASON
//   <!-- test setup: COMMANDS --> COMMANDS are run here; of no block
//   <!-- test rows: CODE -->      the code in the second column of each row of the table that follows is compiled and
//                                 run, after CODE; of `a; b` → `c`, c is what b prints
// Commands between backquotes, links and paths in the prose are checked too: `hearth` commands have these options, and
// files exist.
#pragma once

#include <string>

namespace hearth::test {

/// The script of the page `name` with these lines; it calls the functions of prelude.sh. std::runtime_error with page
/// and line where a block has no language or a comment is not understood.
std::string page_script(const std::string& name, const std::string& page);

}  // namespace hearth::test
