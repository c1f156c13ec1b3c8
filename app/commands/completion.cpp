// Writes completion scripts for bash, zsh and fish from CommandInfo: the commands, their options, and the values of
// each option.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <map>
#include <memory>

#include "app/commands/commands.h"
#include "app/options/command_tree.h"
#include "app/options/nearest.h"
#include "app/options/option_text.h"

namespace sparsereel::app {
namespace {

std::string replaced(const std::string& text, const std::map<char, std::string>& by) {
  std::string result;
  for (const char c : text) {
    const auto place = by.find(c);
    if (place == by.end())
      result.push_back(c);
    else
      result.append(place->second);
  }
  return result;
}

/// Returns the text in single quotes. Each single quote inside the text becomes '\'': it ends the quoted part, adds an
/// escaped quote, and begins a new quoted part.
std::string literal(const std::string& text) {
  return "'" + replaced(text, {{'\'', "'\\''"}}) + "'";
}

std::string joined(const std::vector<std::string>& words, const std::string& separator = " ") {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += separator;
    text += word;
  }
  return text;
}

/// Returns the choices that users can type as they are, without patterns such as "cuda:N".
std::string words_of(const OptionInfo& option) {
  std::vector<std::string> words = option.choices;
  std::erase_if(words, is_pattern);
  return joined(words);
}

/// Returns the state in which the bash and fish scripts are after the words of this command, such as " bench pipeline".
std::string state(const CommandInfo& command) {
  return command.path.empty() ? "" : " " + command.path;
}

bool takes_file(const CommandInfo& command) {
  return std::any_of(command.options.begin(), command.options.end(),
                     [](const OptionInfo& option) { return option.positional && option.is_file(); });
}

/// Returns the words that may stand in place of a positional argument: the subcommands, or the choices of the argument.
std::vector<std::string> plain_words(const CommandInfo& command) {
  std::vector<std::string> words;
  for (const CommandInfo& below : command.commands) words.push_back(below.name());
  for (const OptionInfo& option : command.options)
    if (option.positional) words.insert(words.end(), option.choices.begin(), option.choices.end());
  return words;
}

std::string states(const CommandInfo& program, const std::string& separator) {
  std::vector<std::string> all;
  for (const CommandInfo* command : all_commands(program))
    if (!command->path.empty()) all.push_back(literal(state(*command)));
  return joined(all, separator);
}

std::string bash_values(const CommandInfo& command) {
  std::string text;
  for (const OptionInfo& option : command.options) {
    if (option.positional || option.value.empty()) continue;
    std::vector<std::string> patterns;
    for (const std::string& name : option.names) patterns.push_back(literal(state(command).append(" ").append(name)));
    text.append("    ").append(joined(patterns, "|")).append(") ");
    if (!option.choices.empty())
      text += "words=" + literal(words_of(option)) + " ;;\n";
    else if (option.is_file())
      text += "files=file ;;\n";
    else if (option.is_folder())
      text += "files=directory ;;\n";
    else
      text += "return ;;\n";
  }
  return text;
}

std::string bash_script(const CommandInfo& program) {
  std::string values, words;
  for (const CommandInfo* command : all_commands(program)) {
    values += bash_values(*command);
    std::vector<std::string> options;
    for (const OptionInfo& option : command->options)
      if (!option.positional) options.insert(options.end(), option.names.begin(), option.names.end());
    words.append("      ").append(literal(state(*command))).append(") options=").append(literal(joined(options)));
    words.append(" words=").append(literal(joined(plain_words(*command))));
    words.append(takes_file(*command) ? " files=file ;;\n" : " ;;\n");
  }
  return "# bash completion for sparsereel, written by 'sparsereel completion bash'\n"
         "_sparsereel() {\n"
         "  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} command= word words= files= "
         "options=\n"
         "  if [ \"$previous\" = = ]; then previous=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
         "  if [ \"$current\" = = ]; then current=; fi\n"
         "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
         "    case \"$command $word\" in " +
         states(program, "|") +
         ") command=\"$command $word\" ;; esac\n"
         "  done\n"
         "  COMPREPLY=()\n"
         "  case \"$command $previous\" in\n" +
         values +
         "    *)\n"
         "      case \"$command\" in\n" +
         words +
         "      esac\n"
         "      if [ \"${current#-}\" != \"$current\" ]; then words=$options files=; fi ;;\n"
         "  esac\n"
         "  if [ \"$files\" ]; then compopt -o filenames; mapfile -t COMPREPLY < <(compgen -A \"$files\" -- "
         "\"$current\"); return; fi\n"
         "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
         "}\n"
         "complete -F _sparsereel sparsereel\n";
}

/// Returns arguments for zsh's _arguments: '(-s --seed)-s[seed of the noise]:N:' '(-s --seed)--seed=[seed of the
/// noise]:N:'
std::string zsh_option(const OptionInfo& option) {
  std::string action;
  if (!option.choices.empty()) action = "(" + words_of(option) + ")";
  if (option.is_file()) action = "_files";
  if (option.is_folder()) action = "_files -/";
  if (option.positional) return literal(":" + option.names.front() + ":" + action);
  const std::string help = replaced(option.help, {{'[', "\\["}, {']', "\\]"}, {':', "\\:"}, {'\\', "\\\\"}});
  std::string value;
  if (!option.value.empty())
    value.append(":").append(replaced(option.value, {{':', "\\:"}})).append(":").append(action);
  std::vector<std::string> specs;
  for (const std::string& name : option.names) {
    const char* equals = value.empty() || !name.starts_with("--") ? "" : "=";
    std::string spec = "(" + joined(option.names) + ")";
    specs.push_back(literal(spec.append(name).append(equals).append("[").append(help).append("]").append(value)));
  }
  return joined(specs);
}

std::string zsh_name(const CommandInfo& command) {
  return "_sparsereel" + replaced(state(command), {{' ', "_"}});
}

std::string zsh_function(const CommandInfo& command) {
  std::string text = zsh_name(command) + "() {\n";
  if (!command.commands.empty()) text += "  local line state\n";
  text += std::string("  _arguments -S") + (command.commands.empty() ? "" : " -C");
  for (const OptionInfo& option : command.options) text += " \\\n    " + zsh_option(option);
  if (command.commands.empty()) return text + "\n}\n";
  std::string choices, cases;
  for (const CommandInfo& below : command.commands) {
    choices += (choices.empty() ? "" : " ") + below.name() + "\\:\"" +
               replaced(below.help, {{':', "\\:"}, {'"', "\\\""}, {'(', "\\("}, {')', "\\)"}}) + "\"";
    cases += "    " + below.name() + ") " + zsh_name(below) + " ;;\n";
  }
  return text + " \\\n    " + literal("1:command:((" + choices + "))") + " \\\n    '*::argument:->arguments'\n" +
         "  case $line[1] in\n" + cases + "  esac\n}\n";
}

std::string zsh_script(const CommandInfo& program) {
  std::string text = "#compdef sparsereel\n# zsh completion for sparsereel, written by 'sparsereel completion zsh'\n";
  for (const CommandInfo* command : all_commands(program)) text += zsh_function(*command);
  return text +
         "if [ \"$funcstack[1]\" = _sparsereel ]; then _sparsereel \"$@\"; else compdef _sparsereel sparsereel; fi\n";
}

std::string fish_option(const OptionInfo& option) {
  std::string text;
  for (const std::string& name : option.names)
    text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  if (!option.choices.empty())
    text += " -x -a " + literal(words_of(option));
  else if (option.is_file())
    text += " -r -F";
  else if (option.is_folder())
    text += " -x -a '(__fish_complete_directories)'";
  else if (!option.value.empty())
    text += " -x";
  return text + " -d " + literal(option.help);
}

std::string fish_script(const CommandInfo& program) {
  std::string text =
      "# fish completion for sparsereel, written by 'sparsereel completion fish'\n"
      "function __sparsereel_command\n"
      "  set -l command ''\n"
      "  for word in (commandline -opc)[2..-1]\n"
      "    contains -- \"$command $word\" " +
      states(program, " ") +
      "\n"
      "      and set command \"$command $word\"\n"
      "  end\n"
      "  test \"$command\" = \"$argv[1]\"\n"
      "end\n"
      "complete -c sparsereel -f\n";
  for (const CommandInfo* command : all_commands(program)) {
    const std::string start =
        "complete -c sparsereel -n " + literal("__sparsereel_command \"" + state(*command) + "\"");
    for (const CommandInfo& below : command->commands)
      text += start + " -a " + below.name() + " -d " + literal(below.help) + "\n";
    for (const OptionInfo& option : command->options) {
      if (!option.positional)
        text += start + fish_option(option) + "\n";
      else if (option.is_file())
        text += start + " -F\n";
      else if (!option.choices.empty())
        text += start + " -a " + literal(words_of(option)) + "\n";
    }
  }
  return text;
}

/// Returns the completion script for `shell`: bash, zsh or fish. Throws Error for any other shell.
std::string completion_script(const CommandInfo& program, const std::string& shell) {
  if (shell == "bash") return bash_script(program);
  if (shell == "zsh") return zsh_script(program);
  require_choice("completion for " + shell, shell, {"bash", "zsh", "fish"}, "see 'sparsereel completion --help'");
  return fish_script(program);
}

}  // namespace

void add_completion(CLI::App& program, CommandLine& /*line*/) {
  CLI::App* command =
      program.add_subcommand("completion", "Prints a script that lets your shell complete command lines");
  const auto shell = std::make_shared<std::string>();
  command->footer("source <(sparsereel completion bash)");
  command
      ->add_option(
          "SHELL", *shell,
          packed({.help = "your shell",
                  .manual = R"(Takes bash, zsh or fish. The script completes commands, options, their values and file
                      names. Load it in the shell's start file.)",
                  .example = "sparsereel completion fish > ~/.config/fish/completions/sparsereel.fish"}))
      ->type_name("bash,zsh,fish")
      ->required();
  command->callback([&program, shell] { std::cout << completion_script(describe(program), *shell); });
}

}  // namespace sparsereel::app
