package main

import (
	"strconv"
	"unicode/utf8"
)

// appendJSON adds a string as JSON has it. (encoding/json would make the library a fifth larger.)
func appendJSON(to []byte, text string) []byte {
	to = append(to, '"')
	for _, r := range text { // what is no UTF-8 is U+FFFD
		switch {
		case r == '"' || r == '\\':
			to = append(to, '\\', byte(r))
		case r < ' ' || r == 0x7f:
			to = append(to, `\u00`...)
			to = append(to, "0123456789abcdef"[r>>4], "0123456789abcdef"[r&15])
		default:
			to = utf8.AppendRune(to, r)
		}
	}
	return append(to, '"')
}

// appendPlace adds a place in a program: a function, its file and a line.
func appendPlace(to []byte, function, file string, line int64) []byte {
	to = append(appendJSON(append(to, '['), function), ',')
	to = append(appendJSON(to, file), ',')
	return append(strconv.AppendInt(to, line, 10), ']')
}
