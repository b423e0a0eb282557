package dashboards

import (
	"encoding/json"
	"strings"
)

// schemaVersion is Grafana 11.0's. Later versions bring older dashboards up to date
// when they load them; earlier ones do not know what is newer.
const schemaVersion = 39

// Variables of every dashboard; the chart replaces the runbook's place.
const (
	// RunbookURL is where docs/runbook.md is read.
	RunbookURL = "https://github.com/quietcore/quietcore/blob/main/docs/runbook.md"

	datasourceUID = "${datasource}"
	// chosen stands in queries for the selection of targets.
	chosen   = "@"
	selector = `job=~"$job",node=~"$node"`
	columns  = 24
)

// The structures of Grafana's dashboards, as far as they are used: see
// https://grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model/.
type grafanaDashboard struct {
	Annotations   grafanaAnnotations `json:"annotations"`
	Description   string             `json:"description"`
	Editable      bool               `json:"editable"`
	GraphTooltip  int                `json:"graphTooltip"`
	Links         []grafanaDashLink  `json:"links"`
	Panels        []grafanaPanel     `json:"panels"`
	Refresh       string             `json:"refresh"`
	SchemaVersion int                `json:"schemaVersion"`
	Tags          []string           `json:"tags"`
	Templating    grafanaTemplating  `json:"templating"`
	Time          grafanaTime        `json:"time"`
	Timezone      string             `json:"timezone"`
	Title         string             `json:"title"`
	UID           string             `json:"uid"`
}

type grafanaAnnotations struct {
	List []grafanaAnnotation `json:"list"`
}

type grafanaAnnotation struct {
	Datasource  datasource `json:"datasource"`
	Enable      bool       `json:"enable"`
	Expr        string     `json:"expr"`
	IconColor   string     `json:"iconColor"`
	Name        string     `json:"name"`
	TitleFormat string     `json:"titleFormat"`
	TextFormat  string     `json:"textFormat"`
}

type grafanaDashLink struct {
	AsDropdown  bool     `json:"asDropdown"`
	Icon        string   `json:"icon"`
	IncludeVars bool     `json:"includeVars"`
	KeepTime    bool     `json:"keepTime"`
	Tags        []string `json:"tags"`
	TargetBlank bool     `json:"targetBlank"`
	Title       string   `json:"title"`
	Tooltip     string   `json:"tooltip"`
	Type        string   `json:"type"`
	URL         string   `json:"url"`
}

type grafanaTime struct {
	From string `json:"from"`
	To   string `json:"to"`
}

type grafanaTemplating struct {
	List []grafanaVariable `json:"list"`
}

type grafanaVariable struct {
	AllValue    string          `json:"allValue,omitempty"`
	Current     *variableValue  `json:"current,omitempty"`
	Datasource  *datasource     `json:"datasource,omitempty"`
	Definition  string          `json:"definition,omitempty"`
	Description string          `json:"description"`
	Hide        int             `json:"hide"`
	IncludeAll  bool            `json:"includeAll"`
	Label       string          `json:"label"`
	Multi       bool            `json:"multi"`
	Name        string          `json:"name"`
	Query       any             `json:"query"`
	Refresh     int             `json:"refresh,omitempty"`
	Regex       string          `json:"regex"`
	SkipURLSync bool            `json:"skipUrlSync"`
	Sort        int             `json:"sort,omitempty"`
	Type        string          `json:"type"`
	Options     []variableValue `json:"options,omitempty"`
}

type variableValue struct {
	Selected bool   `json:"selected"`
	Text     string `json:"text"`
	Value    string `json:"value"`
}

type variableQuery struct {
	Query   string `json:"query"`
	RefID   string `json:"refId"`
	QryType int    `json:"qryType"`
}

type datasource struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

func prometheus() datasource { return datasource{"prometheus", datasourceUID} }

type grafanaPanel struct {
	Collapsed       *bool           `json:"collapsed,omitempty"` // rows alone
	Datasource      *datasource     `json:"datasource,omitempty"`
	Description     string          `json:"description,omitempty"`
	FieldConfig     *fieldConfig    `json:"fieldConfig,omitempty"`
	GridPos         gridPos         `json:"gridPos"`
	ID              int             `json:"id"`
	Interval        string          `json:"interval,omitempty"`
	Links           []panelLink     `json:"links,omitempty"`
	Options         map[string]any  `json:"options,omitempty"`
	Panels          *[]grafanaPanel `json:"panels,omitempty"` // rows alone
	Targets         []target        `json:"targets,omitempty"`
	Title           string          `json:"title"`
	Transformations []transform     `json:"transformations,omitempty"`
	Type            string          `json:"type"`
}

type gridPos struct {
	H int `json:"h"`
	W int `json:"w"`
	X int `json:"x"`
	Y int `json:"y"`
}

type panelLink struct {
	TargetBlank bool   `json:"targetBlank"`
	Title       string `json:"title"`
	URL         string `json:"url"`
}

type target struct {
	Datasource   datasource `json:"datasource"`
	EditorMode   string     `json:"editorMode"`
	Expr         string     `json:"expr"`
	Format       string     `json:"format"`
	Instant      bool       `json:"instant"`
	LegendFormat string     `json:"legendFormat"`
	Range        bool       `json:"range"`
	RefID        string     `json:"refId"`
}

type transform struct {
	ID      string         `json:"id"`
	Options map[string]any `json:"options"`
}

type fieldConfig struct {
	Defaults  fieldDefaults   `json:"defaults"`
	Overrides []fieldOverride `json:"overrides"`
}

type fieldDefaults struct {
	Color      map[string]string `json:"color"`
	Custom     map[string]any    `json:"custom,omitempty"`
	Decimals   *int              `json:"decimals,omitempty"`
	Mappings   []valueMapping    `json:"mappings"`
	Max        *float64          `json:"max,omitempty"`
	Min        *float64          `json:"min,omitempty"`
	NoValue    string            `json:"noValue,omitempty"`
	Thresholds thresholds        `json:"thresholds"`
	Unit       string            `json:"unit"`
}

type valueMapping struct {
	Options map[string]mappedValue `json:"options"`
	Type    string                 `json:"type"`
}

type mappedValue struct {
	Color string `json:"color"`
	Index int    `json:"index"`
	Text  string `json:"text"`
}

type thresholds struct {
	Mode  string `json:"mode"`
	Steps []step `json:"steps"`
}

// step is the colour from a value on; the first one's is null.
type step struct {
	Color string   `json:"color"`
	Value *float64 `json:"value"`
}

type fieldOverride struct {
	Matcher    fieldMatcher    `json:"matcher"`
	Properties []fieldProperty `json:"properties"`
}

type fieldMatcher struct {
	ID      string `json:"id"`
	Options string `json:"options"`
}

type fieldProperty struct {
	ID    string `json:"id"`
	Value any    `json:"value"`
}

// File is a dashboard as it is written.
type File struct {
	Name string
	JSON []byte
}

// All are the dashboards of the chart.
func All() ([]File, error) {
	var files []File
	for _, d := range []dashboard{fleet(), node(), interference(), lending()} {
		text, err := json.MarshalIndent(d.grafana(), "", "  ")
		if err != nil {
			return nil, err
		}
		files = append(files, File{strings.TrimPrefix(d.uid, "quietcore-") + ".json", append(text, '\n')})
	}
	return files, nil
}
