#include "ptx/symbols.h"

#include <elf.h>
#include <link.h>

#include <cctype>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <unordered_map>
#include <vector>

namespace rotcell::ptx {
namespace {

// dladdr() knows no local functions, which kernels are.
std::unordered_map<uintptr_t, std::string> read_own_symbols() {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  const std::vector<char> bytes(std::istreambuf_iterator<char>(file), {});
  const auto at = [&](uint64_t offset, auto& value) {
    std::memcpy(&value, bytes.data() + offset, sizeof value);
  };
  uintptr_t base = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* program, size_t, void* to) {
        *static_cast<uintptr_t*>(to) = program->dlpi_addr;
        return 1;  // the program itself comes first
      },
      &base);
  ElfW(Ehdr) header;
  at(0, header);
  std::unordered_map<uintptr_t, std::string> found;
  for (unsigned i = 0; i < header.e_shnum; ++i) {
    ElfW(Shdr) table, names;
    at(header.e_shoff + i * sizeof table, table);
    if (table.sh_type != SHT_SYMTAB) continue;
    at(header.e_shoff + table.sh_link * sizeof names, names);
    for (uint64_t offset = 0; offset < table.sh_size; offset += sizeof(ElfW(Sym))) {
      ElfW(Sym) symbol;
      at(table.sh_offset + offset, symbol);
      if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC)
        found[base + symbol.st_value] = bytes.data() + names.sh_offset + symbol.st_name;
    }
  }
  return found;
}

}  // namespace

std::string symbol_of(const void* function) {
  static const auto symbols = read_own_symbols();
  const auto found = symbols.find(reinterpret_cast<uintptr_t>(function));
  return found == symbols.end() ? "" : found->second;
}

std::string with_plain_namespaces(std::string symbol) {
  static const std::string name = "_GLOBAL__N_", plain = "1_";
  for (size_t at = 0; (at = symbol.find(name, at)) != std::string::npos;) {
    size_t digits = at;
    while (digits > 0 && std::isdigit(static_cast<unsigned char>(symbol[digits - 1]))) --digits;
    symbol.replace(digits, at - digits + std::stoul(symbol.substr(digits)), plain);
    at = digits + plain.size();
  }
  return symbol;
}

}  // namespace rotcell::ptx
