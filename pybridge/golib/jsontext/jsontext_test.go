package jsontext

import (
	"encoding/json"
	"testing"
)

func TestStringsAreJSON(t *testing.T) {
	for _, text := range []string{"", "plain", "\"quoted\" \\ back", "new\nline\x00\x1f\x7f\t", "ünïcödé 漢字 🐍",
		"bad \xff\xfe utf", "\u2028</script>"} {
		var back string
		if err := json.Unmarshal(AppendString(nil, text), &back); err != nil {
			t.Fatalf("%q became %s: %v", text, AppendString(nil, text), err)
		}
		if want := string([]rune(text)); back != want {
			t.Errorf("%q came back as %q", text, back)
		}
	}
	var slot []any
	if err := json.Unmarshal(AppendPlace(nil, "f", "a \"b\".py", -1), &slot); err != nil || len(slot) != 3 {
		t.Fatalf("%v %v", slot, err)
	}
	if slot[0] != "f" || slot[1] != "a \"b\".py" || slot[2] != -1.0 {
		t.Error(slot)
	}
}
