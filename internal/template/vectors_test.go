package template

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/radial-project/radial/internal/core"
)

// evaluate returns the value of one expression.
func evaluate(t *testing.T, expr string) (any, error) {
	t.Helper()
	text := `{"contentVersion":"1.0.0.0","languageVersion":"2.0","resources":{},
	 "variables":{"x":` + toJSON(expr) + `},"outputs":{"o":{"type":"object","value":{"v":"[variables('x')]"}}}}`
	tpl, err := Parse([]byte(text))
	if err != nil {
		return nil, err
	}
	p, err := tpl.Plan(Options{Deployment: "d", Scope: core.GroupID("myRg")})
	if err != nil {
		return nil, err
	}
	outs, err := p.Outputs(nil)
	if err != nil {
		return nil, err
	}
	return outs[0].Value.(map[string]any)["v"], nil
}

type list = []any
type object = map[string]any

// TestFunctions holds functions against the vectors that other implementations
// of the language publish (part of S-41).
func TestFunctions(t *testing.T) {
	for expr, want := range map[string]any{
		`plain`:                    "plain",
		`[[x]`:                     "[x]",
		`[x] y`:                    "[x] y",
		`['it''s']`:                "it's",
		`[-5]`:                     int64(-5),
		`[true()]`:                 true,
		`[null()]`:                 nil,
		`[ concat( 'a' , 'b' ) ]`:  "ab",
		"[concat('a',\n 'b')]":     "ab",
		`[CONCAT('a', 1, true())]`: "a1True",
		`[concat(createArray(1), createArray(2))]`: list{int64(1), int64(2)},

		`[format('>{0}<>{1}<', false(), createObject('a','b','!c',2))]`: `>False<>{'a':'b','!c':2}<`,
		`[format('{0}', createArray(true(), 2893, 'abc'))]`:             `[true,2893,'abc']`,
		`[format('{{{0}}}', 1)]`:                                        "{1}",
		`[format('{0:D3}|{1,4}|{1,-4}|', 7, 'ab')]`:                     "007|  ab|ab  |",
		`[div(6,11)]`: int64(0),
		`[dateTimeAdd(dateTimeFromEpoch(1680224438),'P1D')]`:              "2023-04-01T01:00:38Z",
		`[dateTimeToEpoch('2023-03-31T01:00:38Z')]`:                       int64(1680224438),
		`[dateTimeToEpoch(dateTimeFromEpoch(0))]`:                         int64(0),
		`[dateTimeAdd('2024-01-31 00:00:00Z','P1M')]`:                     "2024-02-29T00:00:00Z",
		`[dateTimeAdd('2020-04-07 14:53:14Z','P3Y')]`:                     "2023-04-07T14:53:14Z",
		`[dateTimeAdd('2020-04-07 14:53:14Z','-P9D')]`:                    "2020-03-29T14:53:14Z",
		`[dateTimeAdd('2020-04-07 14:53:14Z','PT1H','yyyy-MM-dd HH:mm')]`: "2020-04-07 15:53",
		`[dateTimeAdd('20200407T145314Z','PT1H30M1S','u')]`:               "2020-04-07 16:23:15Z",
		`[dateTimeAdd('2020-04-07T14:53:14Z','P0D','o')]`:                 "2020-04-07T14:53:14.0000000Z",
		`[parseCidr('10.144.0.0/20')]`: object{"network": "10.144.0.0", "netmask": "255.255.240.0", "broadcast": "10.144.15.255",
			"firstUsable": "10.144.0.1", "lastUsable": "10.144.15.254", "cidr": int64(20)},
		`[parseCidr('fdad:3236:5555::/48')]`: object{"network": "fdad:3236:5555::", "netmask": "ffff:ffff:ffff::", "firstUsable": "fdad:3236:5555::",
			"lastUsable": "fdad:3236:5555:ffff:ffff:ffff:ffff:ffff", "cidr": int64(48)},
		`[cidrSubnet('10.144.0.0/20',24,4)]`:              "10.144.4.0/24",
		`[cidrSubnet('fdad:3236:5555::/48',52,3)]`:        "fdad:3236:5555:3000::/52",
		`[cidrHost('10.144.3.0/24',4)]`:                   "10.144.3.5",
		`[cidrHost('fdad:3236:5555:3000::/52',0)]`:        "fdad:3236:5555:3000::1",
		`[parseUri('https://example.com:8443/a/b?c=d')]`:  object{"scheme": "https", "host": "example.com", "port": int64(8443), "path": "/a/b", "query": "?c=d"},
		`[buildUri(parseUri('https://example.com/a?b'))]`: "https://example.com/a?b",
		`[uri('https://example.com/a/b','c')]`:            "https://example.com/a/c",
		`[uri('https://example.com/a/b/','c')]`:           "https://example.com/a/b/c",
		`[extensionResourceId('/a/b','P.Q/r','s')]`:       "/a/b/providers/P.Q/r/s",
		`[tenantResourceId('P.Q/r/t','s','u')]`:           "/providers/P.Q/r/s/t/u",
		`[subscriptionResourceId('sub','P.Q/r','s')]`:     "/subscriptions/sub/providers/P.Q/r/s",
		`[managementGroupResourceId('mg','P.Q/r','s')]`:   "/providers/Microsoft.Management/managementGroups/mg/providers/P.Q/r/s",
		`[resourceId('other','P.Q/r','s')]`:               "/planes/radius/local/resourceGroups/other/providers/P.Q/r/s",
		`[resourceGroup().name]`:                          "myRg",
		`[environment().suffixes.storage]`:                "core.windows.net",
		`[sub(0,13)]`:                                     int64(-13),
		`[mod(20,7)]`:                                     int64(6),
		`[mul(-3,4)]`:                                     int64(-12),
		`[max(createArray(1,9,3))]`:                       int64(9),
		`[min(4,2,8)]`:                                    int64(2),
		`[int('42')]`:                                     int64(42),
		`[indexOf('FOOBAR','foo')]`:                       int64(0),
		`[indexOf(createArray('FOO'),'foo')]`:             int64(-1),
		`[indexOf(createArray('FOO'),123)]`:               int64(-1),
		`[lastIndexOf('abcab','AB')]`:                     int64(3),
		`[contains('FOOBAR','foo')]`:                      false,
		`[contains(createArray('FOO'),'foo')]`:            false,
		`[contains(createObject('One',1),'one')]`:         true,
		`[join(map(items(createObject('ghiKey',1,'defKey',1,'abcKey',1,'123Key',1,'GHIKey',1,'DEFKey',1,'ABCKey',1,'456Key',1)), lambda('i', lambdaVariables('i').key)), ' ')]`:                 "123Key 456Key abcKey ABCKey defKey DEFKey ghiKey GHIKey",
		`[toObject(createArray(123,456,789), lambda('i', string(div(lambdaVariables('i'),100))))]`:                                                                                              object{"1": int64(123), "4": int64(456), "7": int64(789)},
		`[sort(createArray('ghi','abc','def'), lambda('x','y', less(lambdaVariables('x'),lambdaVariables('y'))))]`:                                                                              list{"abc", "def", "ghi"},
		`[groupBy(json('[{"t":"a","v":123},{"t":"b","v":456},{"t":"a","v":789}]'), lambda('x', lambdaVariables('x').t), lambda('x', lambdaVariables('x').v))]`:                                  object{"a": list{int64(123), int64(789)}, "b": list{int64(456)}},
		`[reduce(createArray(), 0, lambda('a','b', add(lambdaVariables('a'),lambdaVariables('b'))))]`:                                                                                           int64(0),
		`[reduce(createArray('abc','def','ghi'), '', lambda('c','n','i', if(equals(mod(lambdaVariables('i'),2),0), concat(lambdaVariables('c'),lambdaVariables('n')), lambdaVariables('c'))))]`: "abcghi",
		`[filter(createArray('a','b','c'), lambda('x','i', equals(mod(lambdaVariables('i'),2),0)))]`:                                                                                            list{"a", "c"},
		`[mapValues(createObject('a',123,'b',456), lambda('v', mul(lambdaVariables('v'),2)))]`:                                                                                                  object{"a": int64(246), "b": int64(912)},
		`[shallowMerge(createArray(createObject('a',1),createObject('b',2)))]`:                                                                                                                  object{"a": int64(1), "b": int64(2)},
		`[tryGet(createObject('foo',1),'fizz',0,'bar')]`:                                                                                                                                        nil,
		`[tryGet(createArray(1),10)]`: nil,
		`[substring('asdfasf',3)]`:    "fasf",
		`[padLeft(13,5)]`:             "   13",
		`[padLeft('13',5,'0')]`:       "00013",
		`[union(createObject('abc','def'),createObject('def','ghi'))]`: object{"abc": "def", "def": "ghi"},
		`[union(json('{"a":{"x":1,"y":1}}'),json('{"a":{"y":2}}'))]`:   object{"a": object{"x": int64(1), "y": int64(2)}},
		`[union(createArray(1,2),createArray(2,3))]`:                   list{int64(1), int64(2), int64(3)},
		`[intersection(createArray(1,2,3),createArray(2,3,4))]`:        list{int64(2), int64(3)},
		`[uri('https://github.com','Azure/bicep')]`:                    "https://github.com/Azure/bicep",
		`[uri('https://h/a/b','c')]`:                                   "https://h/a/c",
		`[uri('https://h/a/b/','c')]`:                                  "https://h/a/b/c",
		`[uriComponent('UB*8h 0+=_)9h9n')]`:                            "UB%2A8h%200%2B%3D_%299h9n",
		`[base64(' Fizz ')]`:                                           "IEZpenog",
		`[base64ToString(base64('ä'))]`:                                "ä",
		`[dataUri(' Fizz ')]`:                                          "data:text/plain;charset=utf-8;base64,IEZpenog",
		`[guid('asdf')]`:                                               "228d27cc-6fdb-5934-b7ac-1efccebade04",
		`[guid('foo','bar','baz')]`:                                    "2ed86837-7c7c-5eaa-9864-dd077fd19b0d",
		`[uniqueString('snap','crackle','pop')]`:                       "byghxckddilkc",
		`[uniqueString('asd','asdf','asdf')]`:                          "iizpqit7ih3cc",
		`[uniqueString('a')]`:                                          "eveiun73364hy",
		`[uniqueString('fu')]`:                                         "6rkxbspxjmsho",
		`[uniqueString('a','b','c','d')]`:                              "mcd5cwblnnf3m",
		`[uniqueString('/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/myRg')]`: "js26ofeqkqeve",
		`[first('abc')]`:                                        "a",
		`[last(range(1,4))]`:                                    int64(4),
		`[take('abc',2)]`:                                       "ab",
		`[skip(createArray(1,2,3),1)]`:                          list{int64(2), int64(3)},
		`[length('äöü')]`:                                       int64(3),
		`[empty(createObject())]`:                               true,
		`[split('a,b;c', createArray(',',';'))]`:                list{"a", "b", "c"},
		`[replace('aXbX','X','')]`:                              "ab",
		`[toUpper(trim('  a '))]`:                               "A",
		`[startsWith('Foo','fO')]`:                              true,
		`[endsWith('Foo','OO')]`:                                true,
		`[like('Hello','h*l?')]`:                                true,
		`[coalesce(null(), 'x', fail('never'))]`:                "x",
		`[if(true(), 'x', fail('never'))]`:                      "x",
		`[and(false(), fail('never'))]`:                         false,
		`[or(true(), fail('never'))]`:                           true,
		`[equals(createObject('a',1), json('{"a":1}'))]`:        true,
		`[equals('a','A')]`:                                     false,
		`[less('a','b')]`:                                       true,
		`[greaterOrEquals(3,3)]`:                                true,
		`[bool('True')]`:                                        true,
		`[string(createObject('a', createArray(1,'<')))]`:       `{"a":[1,"<"]}`,
		`[json('{"a":1.5}').A]`:                                 1.5,
		`[createArray(1,2)[1]]`:                                 int64(2),
		`[createObject('a','b')['a']]`:                          "b",
		`[flatten(createArray(createArray(1),createArray(2)))]`: list{int64(1), int64(2)},
		`[indexFromEnd(createArray(1,2,3),1)]`:                  int64(3),
		`[objectKeys(createObject('b',1,'a',2))]`:               list{"a", "b"},
		`[deployment().name]`:                                   "d",
		`[resourceId('A.B/c','n')]`:                             "/planes/radius/local/resourceGroups/myRg/providers/A.B/c/n",
		`[resourceId('other','A.B/c/d','n','m')]`:               "/planes/radius/local/resourceGroups/other/providers/A.B/c/n/d/m",
	} {
		got, err := evaluate(t, expr)
		if err != nil {
			t.Errorf("%s: %v", expr, err)
		} else if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", expr, diff)
		}
	}
}

func TestFunctionErrors(t *testing.T) {
	for expr, want := range map[string]string{
		`[toLowr('x')]`:                      `variables.x (line 2, column 22): there is no function toLowr; did you mean "toLower"?`,
		`[concat('x', toLowr('x'))]`:         `column 34): there is no function toLowr`,
		`[substring('x')]`:                   `substring takes 2 to 3 arguments, here are 1`,
		`[toLower(1)]`:                       `toLower: argument 1 must be a string, it is of type int`,
		`[concat('a'`:                        ``,
		`[concat('a']`:                       `")" is expected after the arguments of concat, here is the end of the expression`,
		`['abc]`:                             `a string that starts here has no closing quote`,
		`[true]`:                             `"true" must be followed by parentheses`,
		`[createObject('a',1,'b',2).c]`:      `the object has no property "c" (it has: a, b)`,
		`[createArray(1)[3]]`:                `the index 3 is out of range: the array has 1 elements`,
		`[null().x]`:                         `a value of type null has no property "x"`,
		`[variables('y')]`:                   `there is no variable "y"`,
		`[variables('x')]`:                   `the variable "x" leads back to itself`,
		`[parameters('p')]`:                  `there is no parameter "p"`,
		`[reference('x')]`:                   `a variable may not use reference`,
		`[listKeys('x')]`:                    `a variable may not use listKeys`,
		`[newGuid()]`:                        `only in the default of a parameter`,
		`[copyIndex()]`:                      `it stands in no loop`,
		`[cidrSubnet('10.0.0.0/16',8,0)]`:    `the new prefix must have from 16 to 32 bits`,
		`[cidrSubnet('10.0.0.0/30',31,2)]`:   `the index is out of range`,
		`[cidrHost('10.0.0.0/30',2)]`:        `beyond the addresses`,
		`[parseCidr('10.0.0.0')]`:            `not a network in CIDR notation`,
		`[dateTimeAdd('x','P1D')]`:           `argument 1 is not a date and time`,
		`[dateTimeAdd('2020-01-01','1D')]`:   `not a duration of ISO 8601`,
		`[dateTimeFromEpoch(999999999999)]`:  `outside of the years`,
		`[buildUri(createObject('host',1))]`: `the part "host" must be a string`,
		`[subscription().id]`:                `the deployment has no subscription`,
		`[div(1,0)]`:                         `division by zero`,
		`[add(9223372036854775807,1)]`:       `out of the range`,
		`[1 2]`:                              `where the expression should end`,
		`[a.b('x')]`:                         `there is no function a.b`,
		`[range(0,1000000)]`:                 `the count must be from 0 to 10000`,
		`[format('{1}','a')]`:                `the format names {1}, but 1 values are given`,
	} {
		if want == "" {
			if v, err := evaluate(t, expr); err != nil || v != expr {
				t.Errorf("%s is no expression and must stay as it is: %v, %v", expr, v, err)
			}
			continue
		}
		v, err := evaluate(t, expr)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, %v; want an error with %q", expr, v, err, want)
			continue
		}
		if core.CodeOf(err) != core.CodeInvalidTemplate || core.AsError(err).Target != "variables.x" {
			t.Errorf("%s: code %s, target %q", expr, core.CodeOf(err), core.AsError(err).Target)
		}
	}
}

func TestDefaultsOfParameters(t *testing.T) {
	text := `{"contentVersion":"1.0.0.0","resources":[],
	 "parameters":{"id":{"type":"string","defaultValue":"[newGuid()]"},"at":{"type":"string","defaultValue":"[utcNow('d')]"},
	  "both":{"type":"string","defaultValue":"[concat(parameters('id'),'/',parameters('at'))]"}},
	 "outputs":{"o":{"type":"string","value":"[parameters('both')]"}}}`
	tpl, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	p, err := tpl.Plan(Options{Now: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC), NewGUID: func() string { return "g" }})
	if err != nil {
		t.Fatal(err)
	}
	outs, err := p.Outputs(nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := outs[0].Value; got != "g/03/04/2026" {
		t.Errorf("got %v", got)
	}
}
